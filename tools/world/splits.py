"""Split labels and triples by a hash, so that the splits never change."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

from world.facts import Triple

SPLITS = ("train", "valid", "test")
SEED = "world 1"


def shuffle_key(*names: str) -> str:
    """A fixed place in a shuffled order; unlike a random generator it is the same in every Python."""
    return hashlib.sha256("\t".join((SEED, *names)).encode()).hexdigest()


def split_labels(classes: dict[str, str]) -> dict[str, str]:
    """{country: split}, about 60/20/20 within each class."""
    members: dict[str, list[str]] = defaultdict(list)
    for country, region in classes.items():
        members[region].append(country)
    chosen = {}
    for countries in members.values():
        countries.sort(key=shuffle_key)
        held_out = max(1, round(len(countries) / 5))
        for i, country in enumerate(countries):
            chosen[country] = "test" if i < held_out else "valid" if i < 2 * held_out else "train"
    return chosen


def split_triples(triples: list[Triple]) -> dict[Triple, str]:
    """{triple: split}, about 90/5/5 within each relation.

    A triple is held out only if both its ends keep a training triple, and `borders` together with its mirror
    image: else one would give away the other.
    """
    left = Counter(end for s, _, o in triples for end in (s, o))
    by_relation: dict[str, set[tuple[Triple, ...]]] = defaultdict(set)
    for s, r, o in triples:
        unit = tuple(sorted([(s, r, o), (o, r, s)])) if r == "borders" else ((s, r, o),)
        by_relation[r].add(unit)
    chosen = dict.fromkeys(triples, "train")
    for units in by_relation.values():
        quota = round(len(units) / 20)
        held_out = 0
        for unit in sorted(units, key=lambda u: shuffle_key(*u[0])):
            ends = Counter(end for s, _, o in unit for end in (s, o))
            if held_out == 2 * quota:
                break
            if all(left[end] > count for end, count in ends.items()):
                left.subtract(ends)
                chosen.update(dict.fromkeys(unit, "test" if held_out % 2 else "valid"))
                held_out += 1
    return chosen
