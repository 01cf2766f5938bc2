"""YAML with the line of every key, read without trusting the file.

Only plain values are made: no tag can call anything. What would grow without bound when its aliases are written out, or
is far too large for a configuration, is refused before any value is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from rgcn.errors import RgcnError

MAX_BYTES = 100_000
MAX_VALUES = 20_000  # after aliases are written out
MERGE, TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"
READ_AS_OTHER = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null", "timestamp")}

Path = tuple[str | int, ...]


class YamlError(RgcnError):
    """Text that is no YAML, or none that we read; line counts from 1."""

    def __init__(self, words: str, line: int | None = None) -> None:
        super().__init__(words if line is None else f"line {line}: {words}")
        self.words, self.line = words, line


@dataclass(frozen=True)
class Duplicate:
    """A key that stands twice in one mapping."""

    path: Path
    first_line: int
    line: int


@dataclass(frozen=True)
class YamlText:
    """Plain values, the line of each key and item by its path (the whole is at ()), and keys that stand twice."""

    values: Any
    lines: dict[Path, int]
    duplicates: list[Duplicate]


def parse_yaml(text: str) -> YamlText:
    """Read one YAML document.

    >>> read = parse_yaml("seed: 3\\nmodel:\\n  hidden: 16\\n")
    >>> read.values
    {'seed': 3, 'model': {'hidden': 16}}
    >>> read.lines[("model", "hidden")]
    3
    """
    if len(text) > MAX_BYTES:
        raise YamlError(f"too large: a configuration has at most {MAX_BYTES:,} bytes")
    try:
        return _parsed(text)
    except yaml.MarkedYAMLError as error:
        words = f"{error.context}, {error.problem}" if error.context else str(error.problem)
        hint = "; indent with spaces" if "'\\t'" in words else ""
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"not valid YAML: {words}{hint}", None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise YamlError("not valid YAML: nested too deeply") from None


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, whose numbers and dates that cannot be are errors with a line like all others."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


def _parsed(text: str) -> YamlText:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return YamlText(None, {(): 1}, [])
        _check_size(node, {}, set())
        _keys_as_written(node, set())
        duplicates = list(_duplicates(node, (), set()))
        values = _unshared(loader.construct_document(node))
        return YamlText(values, dict(_lines(node, (), node)), duplicates)
    finally:
        loader.dispose()


def _check_size(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """How many values a node stands for when aliases are written out; each node is counted once."""
    if id(node) in above:
        raise YamlError("an alias that contains itself", node.start_mark.line + 1)
    if id(node) not in sizes:
        above.add(id(node))
        size = 1 + sum(_check_size(part, sizes, above) for part in _parts(node))
        above.discard(id(node))
        if size > MAX_VALUES:
            words = f"too large: its aliases written out, it has more than {MAX_VALUES:,} values"
            raise YamlError(words, node.start_mark.line + 1)
        sizes[id(node)] = size
    return sizes[id(node)]


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _keys_as_written(node: yaml.Node, seen: set[int]) -> None:
    """Keys are words: let `on`, `1` or `null` be such, and not what YAML takes them for."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.tag in READ_AS_OTHER:
                key.tag = TEXT
    for part in _parts(node):
        _keys_as_written(part, seen)


def _duplicates(node: yaml.Node, path: Path, seen: set[int]) -> Iterator[Duplicate]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            line, place = key.start_mark.line + 1, (*path, str(key.value))
            if key.value in first:
                yield Duplicate(place, first[key.value], line)
            first.setdefault(key.value, line)
            yield from _duplicates(value, place, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _duplicates(item, (*path, number), seen)


def _lines(node: yaml.Node, path: Path, shown: yaml.Node) -> Iterator[tuple[Path, int]]:
    """After construction, which has put merged keys (`<<`) before a mapping's own: the last of a name counts."""
    yield path, shown.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield from _lines(value, (*path, str(key.value)), key)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _lines(item, (*path, number), item)


def _unshared(value: Any) -> Any:
    """A copy in which an alias is a value of its own, so that changing one place changes no other."""
    if isinstance(value, dict):
        return {key: _unshared(inner) for key, inner in value.items()}
    return [_unshared(inner) for inner in value] if isinstance(value, list) else value
