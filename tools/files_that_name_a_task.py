"""List the files that name a task or one of its estimators, outside the files of the tasks themselves.

    python tools/files_that_name_a_task.py          # the list, and the lines and files of each subpackage
    python tools/files_that_name_a_task.py --json

The files of a task are the one with its class and those that the task names: its configuration, its estimator, and its
components in other subpackages. Comments and docstrings are ignored.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path

from rgcn.models.task import task_of
from rgcn.plugins import TASKS

PACKAGE = Path(__file__).parents[1] / "src" / "rgcn"
NAMES = "NodeClassifier|LinkPredictor|LinkClassifier|NodeClassificationRun|LinkPredictionRun|ClassificationByLinksRun"


def own_files() -> set[Path]:
    """Return the files of the tasks themselves."""
    places = [*TASKS.built_in.values()]
    for name in TASKS.built_in:
        task = task_of(name)
        places += [task.run, task.estimator, *task.parts.values()]
    files = {PACKAGE.parent / f"{place.partition(':')[0].replace('.', '/')}.py" for place in places}
    # Helper files of a task's file are in the same folder and start with the same word.
    siblings = [file.parent.glob(f"{file.name.partition('_')[0]}_*.py") for file in files if "_" in file.name]
    return {*files, *(path for found in siblings for path in found)}


def code_of(path: Path) -> str:
    """Return the code of a file without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body[0] = ast.Pass()
    return ast.unparse(tree)


def asking(paths: list[Path]) -> list[Path]:
    """Return the files that name a task or an estimator of one."""
    tasks = "|".join(map(re.escape, TASKS.built_in))
    wanted = re.compile(rf"['\"]({tasks})['\"]|isinstance\([^)]*({NAMES})|\b({NAMES})\b")
    return [path for path in paths if wanted.search(code_of(path))]


def main() -> None:
    every = sorted(PACKAGE.rglob("*.py"))
    own = own_files()
    found = [path.relative_to(PACKAGE).as_posix() for path in asking([path for path in every if path not in own])]
    subpackages: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in every:
        subpackage = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "."
        subpackages[subpackage] += len(path.read_text(encoding="utf-8").splitlines())
        files[subpackage] += 1
    if "--json" in sys.argv:
        print(json.dumps({"asking": found, "lines": dict(subpackages), "files": dict(files)}))
        return
    print(f"{len(found)} files outside the tasks' own name a task:", *found, sep="\n  ")
    print(f"\n{sum(subpackages.values()):,} lines in {sum(files.values())} files:")
    for subpackage, lines in sorted(subpackages.items()):
        print(f"  {subpackage:<12} {lines:>7,} lines {files[subpackage]:>4} files")


if __name__ == "__main__":
    main()
