"""YAML with the line of every key, read without trusting the file.

Only plain values are made: no tag can call anything. What would grow without bound when its aliases are written out, or
is far too large for a configuration, is refused before any value is made.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Duplicate(NamedTuple):
    """A key that stands twice in one mapping."""

    path: Path
    first_line: int
    line: int


@dataclass
class YamlText:
    """Plain values, the line of each key and item by its path (the whole is at ()), and keys that stand twice."""

    values: Any = None
    lines: dict[Path, int] = field(default_factory=lambda: {(): 1})
    duplicates: list[Duplicate] = field(default_factory=list)


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
    read = YamlText()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _prepare(node, (), read.duplicates, {}, set())
            read.values = _unshared(loader.construct_document(node))
            read.lines = dict(_lines(node, (), node))
    except yaml.MarkedYAMLError as error:
        words = f"{error.context}, {error.problem}" if error.context else str(error.problem)
        hint = "; indent with spaces" if "'\\t'" in words else ""
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"not valid YAML: {words}{hint}", None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise YamlError("not valid YAML: nested too deeply") from None
    return read


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, whose numbers and dates that cannot be are errors with a line like all others."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


def _children(node: yaml.Node) -> list[tuple[str | int, yaml.Node, yaml.Node]]:
    """(key or number, the node that shows where it stands, the node of the value)."""
    if isinstance(node, yaml.MappingNode):
        return [(str(key.value), key, value) for key, value in node.value]
    return [(i, item, item) for i, item in enumerate(node.value)] if isinstance(node, yaml.SequenceNode) else []


def _prepare(node: yaml.Node, path: Path, twice: list[Duplicate], sizes: dict[int, int], above: set[int]) -> int:
    """How many values a node stands for when aliases are written out; on the way `twice` is filled, keys become words.

    Let `on`, `1` or `null` be words where they are keys, and not what YAML takes them for. Each node is looked at once.
    """
    if id(node) in above:
        raise YamlError("an alias that contains itself", node.start_mark.line + 1)
    if id(node) in sizes:
        return sizes[id(node)]
    above.add(id(node))
    size, first = 1, dict[str | int, int]()
    for name, shown, value in _children(node):
        size += 1 + _prepare(value, (*path, name), twice, sizes, above)
        if shown is not value and isinstance(shown, yaml.ScalarNode) and shown.tag != MERGE:
            shown.tag = TEXT if shown.tag in READ_AS_OTHER else shown.tag
            line = shown.start_mark.line + 1
            if name in first:
                twice.append(Duplicate((*path, name), first[name], line))
            first.setdefault(name, line)
    above.discard(id(node))
    if size > MAX_VALUES:
        words = f"too large: its aliases written out, it has more than {MAX_VALUES:,} values"
        raise YamlError(words, node.start_mark.line + 1)
    sizes[id(node)] = size
    return size


def _lines(node: yaml.Node, path: Path, shown: yaml.Node) -> Iterator[tuple[Path, int]]:
    """After construction, which has put merged keys (`<<`) before a mapping's own: the last of a name counts."""
    yield path, shown.start_mark.line + 1
    for name, place, value in _children(node):
        yield from _lines(value, (*path, name), place)


def _unshared(value: Any) -> Any:
    """A copy in which an alias is a value of its own, so that changing one place changes no other."""
    if isinstance(value, dict):
        return {key: _unshared(inner) for key, inner in value.items()}
    return [_unshared(inner) for inner in value] if isinstance(value, list) else value
