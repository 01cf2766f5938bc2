"""FB-Toy, cut out of FB15k-237: the triples among its busiest entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rgcn.data.reading import read

Triple = tuple[str, str, str]
MIN_DEGREE = 161  # the degree that leaves exactly the 299 entities FB-Toy was drawn from


def cut(splits: Mapping[str, Sequence[Triple]], min_degree: int = MIN_DEGREE) -> dict[str, list[Triple]]:
    """The small graph: triples among the entities of at least `min_degree` training triples.

    Degree counts head and tail occurrences in training. Valid and test keep only triples whose entities and relation
    are still met in the small training set, so that every question in them can be answered from it.

    >>> train = [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "c")]
    >>> small = cut({"train": train, "valid": [("a", "s", "b")], "test": [("b", "r", "b")]}, min_degree=2)
    >>> small["train"], small["valid"], small["test"]
    ([('a', 'r', 'b'), ('b', 'r', 'a')], [], [('b', 'r', 'b')])
    """
    degree: Counter[str] = Counter()
    for head, _, tail in splits["train"]:
        degree[head] += 1
        degree[tail] += 1
    busy = {entity for entity, count in degree.items() if count >= min_degree}
    train = [(h, r, t) for h, r, t in splits["train"] if h in busy and t in busy]
    entities = {end for h, _, t in train for end in (h, t)}
    relations = {r for _, r, _ in train}
    small = {"train": train}
    for split in ("valid", "test"):
        small[split] = [(h, r, t) for h, r, t in splits[split] if h in entities and t in entities and r in relations]
    return small


def cut_folder(splits: Mapping[str, Path], target: Path, min_degree: int = MIN_DEGREE) -> None:
    """Write {train,valid,test}.txt of the small graph into `target`, from the large one's file for each split."""
    for split, triples in cut({split: read(path).named() for split, path in splits.items()}, min_degree).items():
        text = "".join(f"{h}\t{r}\t{t}\n" for h, r, t in triples)
        (target / f"{split}.txt").write_bytes(text.encode())
