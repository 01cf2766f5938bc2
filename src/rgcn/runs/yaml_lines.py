"""Read YAML with the line of every key, safely.

Only plain values are created: no tag can call code. Aliases are expanded into copies. Files that would expand without
bound, or are far too large for a configuration, are refused.
"""

from typing import Any, NamedTuple

import yaml

from rgcn.errors import RgcnError

MAX_BYTES = 100_000
MAX_VALUES = 20_000  # after aliases are expanded
SEQUENCE, MAPPING, MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("seq", "map", "merge"))

Path = tuple[str | int, ...]


class YamlError(RgcnError):
    """Text that is not valid YAML, or too large; `line` counts from 1."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason, self.line = reason, line


class Duplicate(NamedTuple):
    """A key that occurs twice in one mapping."""

    path: Path
    first_line: int
    line: int


class YamlText(NamedTuple):
    """The result of `parse_yaml`.

    Attributes:
        values: Plain values.
        lines: The line of each key and item by its path; the document itself has the path ().
        duplicates: Keys that occur twice.
    """

    values: Any
    lines: dict[Path, int]
    duplicates: list[Duplicate]


def parse_yaml(text: str) -> YamlText:
    r"""Parse one YAML document.

    Raises:
        YamlError: The text is not valid YAML, or too large.

    Examples:
        >>> read = parse_yaml("seed: 3\nmodel:\n  hidden: 16\n")
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
        reason = f"{error.context}, {error.problem}" if error.context else str(error.problem)
        hint = "; indent with spaces" if "'\\t'" in reason else ""
        mark = error.problem_mark or error.context_mark
        raise YamlError(f"not valid YAML: {reason}{hint}", None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:
        raise YamlError(f"not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError:
        raise YamlError("not valid YAML: nested too deeply") from None


class _Reader(yaml.SafeLoader):
    """PyYAML's safe loader, which records lines and reads every key as text, also `on`, `1` and `null`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines, self.duplicates, self.num_values = dict[Path, int](), list[Duplicate](), 0

    def value(self, node: yaml.Node, path: Path, parents: tuple[yaml.Node, ...]) -> Any:
        """Return the value of a node inside `parents`."""
        line, self.num_values = node.start_mark.line + 1, self.num_values + 1
        self.lines.setdefault(path, line)
        if node in parents:
            raise YamlError("an alias that contains itself", line)
        if self.num_values > MAX_VALUES:
            raise YamlError(f"too large: with expanded aliases it has more than {MAX_VALUES:,} values", line)
        if node.tag == MAPPING and isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, (*parents, node))
        if node.tag == SEQUENCE and isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, i), (*parents, node)) for i, item in enumerate(node.value)]
        try:
            return self.construct_object(node, deep=True)
        except (ValueError, OverflowError) as error:  # impossible numbers and dates
            raise _invalid(str(error), node) from error

    def _mapping(self, node: yaml.MappingNode, path: Path, parents: tuple[yaml.Node, ...]) -> dict[str, Any]:
        values, first = dict[str, Any](), dict[str, int]()
        for key, value in sorted(node.value, key=lambda pair: pair[0].tag != MERGE):  # own keys override merged ones
            if key.tag == MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in reversed(sources):
                    if not isinstance(source, yaml.MappingNode):
                        raise _invalid("expected a mapping for merging", source)
                    values |= self.value(source, path, parents)
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _invalid("found unhashable key", key)
            name, inner, line = str(key.value), (*path, str(key.value)), key.start_mark.line + 1
            if name in first:
                self.duplicates.append(Duplicate(inner, first[name], line))
            self.lines[inner] = line
            first.setdefault(name, line)
            values[name] = self.value(value, inner, parents)
        return values


def _invalid(reason: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)
