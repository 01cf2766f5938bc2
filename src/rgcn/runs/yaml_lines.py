"""YAML with the line of every key, read without trusting the file.

Only plain values are made: no tag can call anything. Aliases are written out, so that changing one place changes no
other, and counted meanwhile: what would grow without bound, or is far too large for a configuration, is refused.
"""

from typing import Any, NamedTuple

import yaml

from rgcn.errors import RgcnError

MAX_BYTES = 100_000
MAX_VALUES = 20_000  # after aliases are written out
SEQUENCE, MAPPING, MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("seq", "map", "merge"))

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


class YamlText(NamedTuple):
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
        reader = _Reader(text)
        node = reader.get_single_node()
        values = None if node is None else reader.value(node, (), ())
        return YamlText(values, {(): 1} | reader.lines, reader.duplicates)
    except yaml.MarkedYAMLError as error:
        words = f"{error.context}, {error.problem}" if error.context else str(error.problem)
        hint = "; indent with spaces" if "'\\t'" in words else ""
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"not valid YAML: {words}{hint}", None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise YamlError("not valid YAML: nested too deeply") from None


class _Reader(yaml.SafeLoader):
    """PyYAML's safe loader, which notes lines, and lets a key be a word: `on`, `1` and `null` too."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines, self.duplicates, self.made = dict[Path, int](), list[Duplicate](), 0

    def value(self, node: yaml.Node, path: Path, above: tuple[yaml.Node, ...]) -> Any:
        """The value of a node; `above` are those it is in."""
        line, self.made = node.start_mark.line + 1, self.made + 1
        self.lines.setdefault(path, line)
        if node in above:
            raise YamlError("an alias that contains itself", line)
        if self.made > MAX_VALUES:
            raise YamlError(f"too large: its aliases written out, it has more than {MAX_VALUES:,} values", line)
        if node.tag == MAPPING and isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*above, node))
        if node.tag == SEQUENCE and isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, i), (*above, node)) for i, item in enumerate(node.value)]
        try:
            return self.construct_object(node, deep=True)
        except (ValueError, OverflowError) as error:  # numbers and dates that cannot be
            raise _wrong(str(error), node) from error

    def _mapping(self, node: yaml.MappingNode, path: Path, above: tuple[yaml.Node, ...]) -> dict[str, Any]:
        values, first = dict[str, Any](), dict[str, int]()
        for key, value in sorted(node.value, key=lambda pair: pair[0].tag != MERGE):  # own keys last: they count
            if key.tag == MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in reversed(sources):
                    if not isinstance(source, yaml.MappingNode):
                        raise _wrong("expected a mapping for merging", source)
                    values |= self.value(source, path, above)
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong("found unhashable key", key)
            name, at, line = str(key.value), (*path, str(key.value)), key.start_mark.line + 1
            if name in first:
                self.duplicates.append(Duplicate(at, first[name], line))
            self.lines[at] = line
            first.setdefault(name, line)
            values[name] = self.value(value, at, above)
        return values


def _wrong(words: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, words, node.start_mark)
