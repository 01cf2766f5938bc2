"""Run the tests with the lowest versions of packages that pyproject.toml allows: `make bounds`.

    python tools/bounds.py [--venv .venv-bounds] [--print] [arguments of pytest]

Direct dependencies, also those of extras, are installed at their lower bound. torch and packages that only the tests
need have the versions of constraints.txt. Indirect dependencies are the newest that pip finds, as for a user. Without
arguments all tests run except those that need a browser or schemathesis.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # type: ignore[no-redef]

ROOT = Path(__file__).parents[1]
EXTRAS = ("gpu", "serve", "tune", "tensorboard", "mlflow")
PINNED = {"torch"}
FOR_TESTS = ("httpx", "hypothesis", "pytest", "pytest-xdist")
LEFT_OUT = ("tests/serve/test_browser.py", "tests/serve/test_schema.py")  # they need a browser, schemathesis


def lowest(pyproject: Path) -> dict[str, str]:
    """Return the lower bound of each package; if it has several, the highest, as pip does."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    stated = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    bounds: dict[str, str] = {}
    for requirement in stated:
        found = re.fullmatch(r"([\w-]+)>=([\w.]+)( ;.*)?", requirement)
        if found is None:
            sys.exit(f"pyproject.toml: {requirement!r} states no lower bound, NAME>=VERSION")
        if found[1] not in PINNED:
            bounds[found[1]] = max(bounds.get(found[1], "0"), found[2], key=_numbers)
    return bounds


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def pinned(constraints: Path) -> list[str]:
    """Return the lines of constraints.txt about torch and the packages that only the tests need."""
    names = PINNED | set(FOR_TESTS)
    lines = constraints.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-bounds")
    parser.add_argument("--print", action="store_true", help="only print the versions")
    options, tests = parser.parse_known_args()
    lines = [f"{name}=={version}" for name, version in lowest(ROOT / "pyproject.toml").items()]
    lines += pinned(ROOT / "constraints.txt")
    if options.print:
        print("\n".join(lines))
        return 0
    subprocess.run([sys.executable, "-m", "venv", "--clear", options.venv], check=True)
    python, constraints = options.venv / "bin" / "python", options.venv / "lowest.txt"
    constraints.write_text("\n".join(lines) + "\n", encoding="utf-8")
    here = f"{ROOT}[{','.join(EXTRAS)}]"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", constraints, "-e", here, *FOR_TESTS], check=True)
    arguments = tests or ["tests", "src", *(f"--ignore={ROOT / path}" for path in LEFT_OUT)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run([python, "-m", "pytest", "-n", "2", *arguments], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
