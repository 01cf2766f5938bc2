"""Titles for pictures, where there is little room."""

from __future__ import annotations

from rgcn.graph.titles import local_name
from rgcn.predict import OpenModel

LONGEST = 36


def node_title(opened: OpenModel, node: int) -> str:
    """What people call a node, without the namespace that even a literal may have."""
    return local_name(opened.titles.of(node))


def relation_title(opened: OpenModel, number: int) -> str:
    """What people call a relation: of a long path its last parts."""
    return path_end(opened.titles.relation(number))


def path_end(path: str) -> str:
    """
    >>> path_end("/film/film/genre"), path_end("/music/performance_role/regular_performances./music/group/role")
    ('/film/film/genre', '…/music/group/role')
    """
    if len(path) <= LONGEST or "/" not in path:
        return path
    parts = path.split("/")
    end = parts.pop()
    while parts and len(parts[-1]) + len(end) < LONGEST - 2 and not parts[-1].endswith("."):
        end = f"{parts.pop()}/{end}"
    return f"…/{end}" if parts else end
