"""How big the house is, and whether it is as docs/architecture.md draws it.

    python tools/house.py [--json FILE] [SOURCE]

Lines and files by room, file and class names that recur, the longest functions and parameter lists, and imports that
point backwards: from a room to one that comes after it, wherever in a file they stand.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src" / "rgcn"

# Each may import those before it. `plugins` is a table of contents: it names classes of later rooms as text, and
# for the type checker alone.
ORDER = """
    version errors conversion placement plugins system config graph data kernels adjacency
    sampling nn links training distributed models
    runs pages tuning paper predict explain visualization serve bench cli __init__ __main__
"""
ROOMS = ORDER.split()

MAY_RECUR = {"__init__", "__main__", "base", "metrics"}


@cache
def parsed(source: Path) -> dict[str, ast.Module]:
    """Every file as "room/file" without its ending, and its syntax tree."""
    paths = sorted(source.rglob("*.py"))
    return {path.relative_to(source).with_suffix("").as_posix(): ast.parse(path.read_text()) for path in paths}


def room_of(file: str) -> str:
    return file.split("/")[0]


def imports(tree: ast.Module, files: set[str]) -> Iterator[str]:
    """Files of the package that a file imports, anywhere in it; not what only the type checker reads."""
    for node in executed(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] != "rgcn":
                continue
            while parts[1:] and "/".join(parts[1:]) not in files and "/".join([*parts[1:], "__init__"]) not in files:
                parts.pop()
            here = "/".join(parts[1:])
            yield here if here in files else f"{here}/__init__".lstrip("/")


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree but those under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from executed(child)


def edges(source: Path = SOURCE) -> dict[tuple[str, str], list[str]]:
    """(room, room it imports from): which files do."""
    trees = parsed(source)
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file, tree in trees.items():
        for other in imports(tree, set(trees)):
            if room_of(file) != room_of(other):
                found[room_of(file), room_of(other)].append(f"{file} imports {other}")
    return dict(found)


def backwards(source: Path = SOURCE) -> list[str]:
    """Imports from a room that comes later, and rooms that have no place in the order."""
    place = {room: number for number, room in enumerate(ROOMS)}
    wrong = [f"{room} has no place in ROOMS" for room in {room_of(file) for file in parsed(source)} - set(place)]
    for (room, other), files in edges(source).items():
        if place.get(room, 0) < place.get(other, 0):
            wrong += files
    return sorted(wrong)


def repeated_files(source: Path = SOURCE) -> dict[str, list[str]]:
    """File names that stand more than once, the command files of cli/ left out."""
    files = [file for file in parsed(source) if room_of(file) != "cli"]
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in files:
        by_name[Path(file).name].append(file)
    return {name: where for name, where in by_name.items() if len(where) > 1 and name not in MAY_RECUR}


def repeated_classes(source: Path = SOURCE) -> dict[str, list[str]]:
    """Public classes that share their name."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for file, tree in parsed(source).items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name[node.name].append(file)
    return {name: where for name, where in by_name.items() if len(where) > 1}


def made_up_attributes(source: Path = SOURCE) -> list[str]:
    """Classes that define what is asked for attributes they do not have, wherever in the class it stands."""
    classes = [(file, node) for file, tree in parsed(source).items() for node in ast.walk(tree)]
    hooks = {"__getattr__", "__getattribute__"}
    return sorted(
        f"{file}:{node.name}"
        for file, node in classes
        if isinstance(node, ast.ClassDef) and any(getattr(part, "name", "") in hooks for part in ast.walk(node))
    )


def functions(source: Path) -> Iterator[tuple[str, int, int]]:
    """(name, lines, parameters) of every function."""
    for file, tree in parsed(source).items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = node.args
                count = len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs)
                yield f"{file}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, count


def figures(source: Path) -> dict[str, Any]:
    lines, files = Counter[str](), Counter[str]()
    for path in source.rglob("*.py"):
        room = room_of(path.relative_to(source).with_suffix("").as_posix())
        room = room if (source / room).is_dir() else "(top)"
        lines[room] += len(path.read_text().splitlines())
        files[room] += 1
    every = list(functions(source))
    return {
        "lines": sum(lines.values()),
        "files": sum(files.values()),
        "rooms": {room: {"lines": lines[room], "files": files[room]} for room in sorted(lines)},
        "repeated_files": repeated_files(source),
        "repeated_classes": repeated_classes(source),
        "longest_functions": sorted(((size, name) for name, size, _ in every), reverse=True)[:10],
        "longest_parameter_lists": sorted(((count, name) for name, _, count in every), reverse=True)[:10],
        "backwards": backwards(source),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", nargs="?", type=Path, default=SOURCE)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    asked = parser.parse_args()
    found = figures(asked.source)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['lines']:,} lines in {found['files']} files")
    for room, counts in found["rooms"].items():
        print(f"  {room:12} {counts['lines']:6,} {counts['files']:4}")
    for title in ("repeated_files", "repeated_classes"):
        print(f"{title.replace('_', ' ')}: {len(found[title])}")
        for name, where in found[title].items():
            print(f"  {name}: {', '.join(where)}")
    for title in ("longest_functions", "longest_parameter_lists"):
        print(title.replace("_", " "))
        for number, name in found[title]:
            print(f"  {number:4}  {name}")
    print(f"imports that point backwards: {len(found['backwards'])}")
    for line in found["backwards"]:
        print(f"  {line}")


if __name__ == "__main__":
    main()
