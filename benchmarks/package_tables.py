"""Write two tables of triples made from the installed Python packages: their metadata, and their classes.

    python benchmarks/package_tables.py --out tables     # tables/packages.csv, tables/classes.csv

packages  requirements, license, topics, audience, Python versions, authors, from the metadata of what is installed
classes   classes of a few packages, their bases, modules, methods and decorators, read from the source and never run
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

Row = tuple[str, str, str]
READ = ("torch", "polars", "pydantic", "starlette", "rich", "optuna", "sympy", "networkx")
CLASSIFIED = {
    "License": "license",
    "Topic": "topic",
    "Intended Audience": "audience",
    "Programming Language": "language",
    "Operating System": "runs_on",
    "Development Status": "status",
    "Framework": "framework",
}


def packages() -> Iterator[Row]:
    """Yield the triples of every installed package, in the order of their names."""
    for found in sorted(metadata.distributions(), key=lambda one: str(one.metadata["Name"]).lower()):
        name = str(found.metadata["Name"]).lower().replace("_", "-")
        for wanted in found.requires or []:
            extra = "extra ==" in wanted
            yield name, "suggests" if extra else "requires", re.split(r"[^\w.-]", wanted)[0].lower().replace("_", "-")
        for line in found.metadata.get_all("Classifier") or []:
            kind, _, value = line.partition(" :: ")
            if kind in CLASSIFIED and value:
                yield name, CLASSIFIED[kind], value
        if found.metadata["Author"]:
            yield name, "author", str(found.metadata["Author"])
        for keyword in re.split(r"[,\s]+", found.metadata["Keywords"] or ""):
            if keyword:
                yield name, "keyword", keyword.lower()


def classes() -> Iterator[Row]:
    """Yield the triples of all classes of the packages in `READ`, file by file."""
    for package in READ:
        place = util.find_spec(package)
        if place is None or not place.submodule_search_locations:
            continue
        root = Path(place.submodule_search_locations[0])
        for path in sorted(root.rglob("*.py")):
            module = ".".join([package, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError):
                continue
            found = [node for node in tree.body if isinstance(node, ast.ClassDef)]
            if found:
                yield module, "part_of", module.rpartition(".")[0] or package
            for node in found:
                name = f"class {node.name}"
                yield name, "defined_in", module
                for base in node.bases:
                    yield name, "extends", f"class {ast.unparse(base).rpartition('.')[2].partition('[')[0]}"
                for each in node.decorator_list:
                    yield name, "decorated_with", f"@{ast.unparse(each).partition('(')[0]}"
                for item in node.body:
                    if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        yield name, "has_method", f"{item.name}()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("tables"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("packages", packages()), ("classes", classes())):
        distinct = list(dict.fromkeys(rows))
        with (options.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("subject", "relation", "object"), *distinct])
        print(f"{options.out / name}.csv: {len(distinct):,} triples")


if __name__ == "__main__":
    main()
