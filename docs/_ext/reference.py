"""Reference pages made from the program itself, when the site is built.

A line `<!-- generated: KIND ARGUMENTS -->` of a page is replaced by Markdown:

    commands                  every command with its help, its options and their defaults
    configuration             every key of a configuration, with type, default and description
    http                      every endpoint of the server, from its OpenAPI document
    names MODULE [NAME ...]   the public names of a module (its `__all__`, or those given), by autodoc

A command, option, key, endpoint or public name without a description is a warning, hence an error of `make docs`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import re
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import rgcn

MARK = re.compile(r"^<!-- generated: (\w+) ?(.*?) -->$", re.MULTILINE)
LOGGER = logging.getLogger(__name__)
KINDS_OF_VALUES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "path": "PATH"}
Report = Callable[[str], None]


# -- commands ---------------------------------------------------------------------------------------------------------


def commands(report: Report, application: str = "rgcn.cli.commands:app") -> str:
    """Return a section for every command of a typer application."""
    import typer

    module, _, name = application.partition(":")
    importlib.import_module(module.rpartition(".")[0] or module)  # it registers the commands
    group = typer.main.get_command(getattr(importlib.import_module(module), name))
    return "\n".join(_command([group.name or "rgcn"], group, report))


def _command(path: list[str], command: Any, report: Report) -> Iterator[str]:
    name, help_text, context = " ".join(path), inspect.cleandoc(command.help or ""), command.context_class(command)
    if not help_text:
        report(f"the command `{name}` has no help: give its function a docstring")
    inner = getattr(command, "commands", {})
    arguments = [_metavar(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    usage = [name, *(["COMMAND"] if inner else []), *arguments, "[OPTIONS]"]
    yield f"\n{'#' * (len(path) + 1)} {name}\n\n```text\n{' '.join(usage)}\n```\n"
    yield _help(help_text)
    yield f"```{{program}} {name}\n```\n"
    for parameter in command.params:
        yield _parameter(name, parameter, context, report)
    for part, child in inner.items():
        yield from _command([*path, part], child, report)


def _help(text: str) -> str:
    """Return a command's help: paragraphs as Markdown, and those that keep their lines as code."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if not paragraph.startswith("\b\n"):
            paragraphs.append(_escape(paragraph))
            continue
        title, _, lines = paragraph.removeprefix("\b\n").partition("\n")
        paragraphs.append(f"{title}\n\n```sh\n{inspect.cleandoc(lines)}\n```")
    return "\n\n".join(paragraphs) + "\n"


def _metavar(parameter: Any) -> str:
    text = parameter.metavar or parameter.name.upper()
    return f"{text if parameter.required else f'[{text}]'}{'...' if parameter.nargs == -1 else ''}"


def _parameter(command: str, parameter: Any, context: Any, report: Report) -> str:
    """Return the entry of an option or argument, from the two columns of the command's own help."""
    if not parameter.help:
        report(f"`{command}`: `{parameter.name}` has no help")
    names, text = parameter.get_help_record(context) or (parameter.name, "")
    if parameter.param_type_name == "argument":
        names, text = parameter.metavar or parameter.name.upper(), text.replace("  [required]", "")
    names = re.sub(r"<(?:list\[)?([\w|-]+)(?: range)?\]?>", lambda kind: KINDS_OF_VALUES.get(kind[1], kind[1]), names)
    return f"```{{option}} {names}\n{_escape(text.replace(chr(92) + '[', '['))}\n```\n"


# -- configuration ----------------------------------------------------------------------------------------------------


def configuration(report: Report, runs: Iterable[type[Any]] | None = None) -> str:
    """Return an entry for every key of a configuration. Keys that tasks share stand once, with their differences."""
    if runs is None:
        from rgcn.config import (
            ClassificationByLinksRun,
            LinkPredictionRun,
            NodeClassificationRun,
            PretrainingRun,
        )

        runs = (NodeClassificationRun, LinkPredictionRun, ClassificationByLinksRun, PretrainingRun)
    entries: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    for run in runs:
        for key, field in _fields(run):
            if not field.description:
                report(f"the key `{key}` of {run.__name__} has no description: write a docstring below the field")
            if key == "task":  # each run has its own
                field = field.__class__(annotation=str, description=f"The task: {_listed(map(_task, runs))}.")
            about = (_annotation(field.annotation, field.metadata), _default(field), field.description or "")
            entries.setdefault(key, {}).setdefault(about, []).append(_task(run))
    count, lines, section = len(list(runs)), list[str](), None
    for key in sorted(entries, key=lambda key: key.rpartition(".")[0]):  # otherwise in their own order
        if section != key.rpartition(".")[0]:
            section = key.rpartition(".")[0]
            lines.append(f"\n## {f'Section `{section}`' if section else 'The run itself'}\n")
        lines.append(_key(key, entries[key], count))
    return "\n".join(lines)


def _fields(section: type[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in section.model_fields.items():
        inner = section.sections().get(name)
        if inner is None:
            yield prefix + name, field
        else:
            yield from _fields(inner, f"{prefix}{name}.")


def _task(run: type[Any]) -> str:
    (task,) = get_args(run.model_fields["task"].annotation) if "task" in run.model_fields else (run.__name__,)
    return str(task)


def _key(key: str, variants: dict[tuple[str, str, str], list[str]], num_tasks: int) -> str:
    kinds, defaults = {kind for kind, _, _ in variants}, {default for _, default, _ in variants}
    lines = [f"```{{confval}} {key}"]
    lines += [f":type: {next(iter(kinds))}"] if len(kinds) == 1 else []
    lines += [f":default: `{next(iter(defaults))}`"] if len(defaults) == 1 and "" not in defaults else []
    covered = {task for tasks in variants.values() for task in tasks}
    for (kind, default, text), tasks in variants.items():
        own = [kind] if len(kinds) > 1 else []
        own += [f"default `{default}`"] if len(defaults) > 1 and default else []
        prefix = "" if len(variants) == 1 and len(covered) == num_tasks else f"*{', '.join(tasks)}*: "
        lines += ["", prefix + "; ".join(own) + (". " if own else "") + _escape(" ".join(text.split()))]
    return "\n".join([*lines, "```", ""])


def _default(field: Any) -> str:
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _annotation(kind: Any, metadata: Iterable[Any] = ()) -> str:
    """Return a type and its bounds in words."""
    if hasattr(kind, "__metadata__"):
        return _annotation(kind.__origin__, (*kind.__metadata__, *metadata))
    for mark in metadata:
        if hasattr(mark, "registry"):
            return ", ".join(f"`{name}`" for name in mark.registry.names()) + ", or `package.module:Class`"
        if getattr(mark, "metadata", None):  # pydantic's Field inside Annotated
            return _annotation(kind, mark.metadata)
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_annotation(part, metadata) for part in get_args(kind)))
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) in (list, tuple):
        return f"list of {_annotation(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return "keys with values"
    if kind is type(None):
        return "`null`"
    words = {bool: "true or false", int: "integer", float: "number", str: "text"}
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [f"{sign} {getattr(m, name):g}" for m in metadata for name, sign in signs.items() if _matters(m, name)]
    return " ".join(
        [words.get(kind, getattr(kind, "__name__", str(kind))), *bounds[:1], *(f"and {b}" for b in bounds[1:])]
    )


def _matters(mark: Any, name: str) -> bool:
    return hasattr(mark, name) and abs(getattr(mark, name)) < 1e15  # more is what a file can hold, not a choice


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


# -- HTTP -------------------------------------------------------------------------------------------------------------


def http(report: Report, document: dict[str, Any] | None = None) -> str:
    """Return a section for every endpoint, and one for every schema that their answers use."""
    document = document or _openapi()
    lines = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += _operation(f"{method.upper()} {path}", operation, report)
    lines.append("\n## Answers\n\nEvery answer is a JSON object with these fields.\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        about, fields = _attributes(schema.get("description", ""))
        lines += [f"\n### {name}\n", _escape(about), ""]
        lines += _properties(schema, fields)
    return "\n".join(lines)


EXAMPLE = [
    ("Amsterdam", "located_in", "The_Netherlands"),
    ("Utrecht", "located_in", "The_Netherlands"),
    ("Brussels", "located_in", "Belgium"),
    ("Antwerp", "located_in", "Belgium"),
    ("Amsterdam", "capital_of", "The_Netherlands"),
    ("Brussels", "capital_of", "Belgium"),
    ("The_Netherlands", "borders", "Belgium"),
    ("The_Netherlands", "part_of", "Europe"),
    ("Belgium", "part_of", "Europe"),
]


def _openapi() -> dict[str, Any]:
    """Return the document of a server of a small graph, answered by the pretrained model."""
    from rgcn.serve import create_app, load_models

    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/openapi.json", "query_string": b""}
    scope |= {"headers": [(b"host", b"localhost")], "client": ("localhost", 1), "scheme": "http"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "europe.tsv"
        path.write_text("".join("\t".join(triple) + "\n" for triple in EXAMPLE), encoding="utf-8")
        app: Any = create_app(load_models([path], device="cpu"))
        asyncio.run(app(scope, receive, send))
    document: dict[str, Any] = json.loads(b"".join(message.get("body", b"") for message in sent))
    return document


def _operation(title: str, operation: dict[str, Any], report: Report) -> Iterator[str]:
    about = " ".join(operation.get("description", "").split())
    if not about:
        report(f"the endpoint `{title}` has no description: give its function a docstring")
    yield f"\n## `{title}`\n\n{_escape(about)}\n"
    for parameter in operation.get("parameters", ()):
        if not parameter.get("description"):
            report(f"the endpoint `{title}`: the parameter `{parameter['name']}` has no description")
        need = "required" if parameter.get("required") else "optional"
        kind = f"{_schema(parameter['schema'])}, in the {parameter['in']}, {need}"
        yield f"- `{parameter['name']}` ({kind}): {_escape(parameter.get('description', ''))}"
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        yield f"- body: {_schema(body['schema'])}\n"
        yield from _example("Request", body.get("example"))
    for kind, content in operation["responses"]["200"].get("content", {}).items():
        yield f"\nAnswers {_schema(content['schema'])} as `{kind}`.\n"
        yield from _example("Answer", content.get("example"))


def _example(title: str, example: Any) -> Iterator[str]:
    if example is not None:
        text = json.dumps(example, indent=2, ensure_ascii=False)
        yield f"````{{dropdown}} {title}: an example\n```json\n{text}\n```\n````\n"


def _attributes(description: str) -> tuple[str, dict[str, str]]:
    """Return a docstring without its section `Attributes:`, and the description of each attribute.

    >>> _attributes("A change. Attributes: named: Of these. random: Of others.")
    ('A change.', {'named': 'Of these.', 'random': 'Of others.'})
    """
    about, _, listed = " ".join(description.split()).partition(" Attributes: ")
    parts = re.split(r"(?:^|(?<=\.) )(\w+): ", listed)[1:]
    return about, dict(zip(parts[::2], parts[1::2], strict=True))


def _properties(schema: dict[str, Any], fields: dict[str, str]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        need = ", required" if name in schema.get("required", ()) else ""
        about = _escape(" ".join(field.get("description", fields.get(name, "")).split()))
        yield f"- `{name}` ({_schema(field)}{need}){f': {about}' if about else ''}"
    yield ""


def _schema(schema: dict[str, Any]) -> str:
    """Return a JSON schema in a few words; schemas of answers are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(map(_schema, schema[key]))
    if "enum" in schema and len(schema["enum"]) > 1:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    bounds = {"minimum": "≥", "maximum": "≤", "maxLength": "at most", "maxItems": "at most"}
    words = [f"{sign} {schema[key]}" for key, sign in bounds.items() if key in schema]
    kind = str(schema.get("type", "any"))
    return " ".join(["text" if kind == "string" else kind, *words])


# -- Python names -----------------------------------------------------------------------------------------------------


def names(report: Report, module: str, *chosen: str) -> str:
    """Return an autodoc directive for each public name of a module, or for those given."""
    imported = importlib.import_module(module)
    lines = []
    for name in chosen or imported.__all__:
        value = getattr(imported, name)
        kind = _kind(value)
        if kind is None or (module != "rgcn" and name in rgcn.__all__):
            continue  # a submodule, __version__, or a name that stands on the page of `rgcn`
        for undocumented in _undocumented(f"{module}.{name}", value):
            report(f"the public name `{undocumented}` has no docstring")
        lines += [f".. auto{kind}:: {module}.{name}"]
        lines += ["   :members:"] if kind in ("class", "exception") else []
        lines += ["   :show-inheritance:"] if inspect.isclass(value) and value.__bases__ != (object,) else []
        lines += [""]
    return "```{eval-rst}\n" + "\n".join(lines) + "```\n"


def _kind(value: Any) -> str | None:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    if inspect.ismodule(value) or isinstance(value, str):
        return None
    return "function" if callable(value) and get_origin(value) is None else "data"


def _undocumented(name: str, value: Any) -> Iterator[str]:
    """Yield a name, and those of its public methods and properties, that no docstring describes."""
    if _kind(value) == "data":
        return
    if not inspect.getdoc(value) or (inspect.isclass(value) and "__doc__" not in vars(value)):
        yield name
    for key, member in vars(value).items() if inspect.isclass(value) else ():
        is_described = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
        if is_described and not key.startswith("_") and not inspect.getdoc(getattr(value, key, member)):
            yield f"{name}.{key}"


# -- Sphinx -----------------------------------------------------------------------------------------------------------


KINDS: dict[str, Callable[..., str]] = {
    "commands": commands,
    "configuration": configuration,
    "http": http,
    "names": names,
}


def _escape(text: str) -> str:
    """Keep what is no Markdown from being read as such, outside of code; options become code."""
    parts = re.split(r"(`[^`]*`|(?<![\w-])--[a-z][\w-]*)", text)
    code = (part if part.startswith("`") else f"`{part}`" for part in parts[1::2])
    plain = [re.sub(r"([*_<\[\]$|])", r"\\\1", part) for part in parts[::2]]
    return "".join(text for pair in zip(plain, [*code, ""], strict=True) for text in pair)


def _fill(app: Sphinx, page: str, source: list[str]) -> None:
    def fill(found: re.Match[str]) -> str:
        return KINDS[found[1]](lambda text: LOGGER.warning("%s", text, location=page), *found[2].split())

    source[0] = MARK.sub(fill, source[0])


def _generated(app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Read pages again whose content comes from the program."""
    return [page for page in env.found_docs if MARK.search(env.doc2path(page).read_text(encoding="utf-8"))]


def _soften(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element) -> Any:
    """Resolve names in docstrings and signatures, which may be short or private; others stay text."""
    if node.get("refdomain") != "py" or not _is_in_description(node):
        return None
    target = node["reftarget"].rpartition(".")[2]
    domain: Any = env.get_domain("py")
    found = [name for name in domain.objects if name.rpartition(".")[2] == target and not domain.objects[name].aliased]
    if len(found) == 1 and (target[:1].isupper() or node["reftarget"].startswith("rgcn.")):
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, content)
    return content


def _signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """Return the signature as the source has it: `NDArray[np.int64]`, and not what that is an alias of."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    if signature is None or any(isinstance(p.annotation, type) for p in found.parameters.values()):
        return None
    parameters = list(found.parameters.values())
    if parameters and parameters[0].name in ("self", "cls") and what == "method":
        parameters = parameters[1:]
    result = (
        ""
        if found.return_annotation in (inspect.Signature.empty, "None") or what == "class"
        else found.return_annotation
    )
    shown = [p.replace(annotation=_Source(p.annotation)) if isinstance(p.annotation, str) else p for p in parameters]
    text = str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty)).replace("<factory>", "...")
    return text, str(result)


class _Source(str):
    """An annotation that is shown as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _mend_back_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the pages of source code link to names where they are described: viewcode guesses their module."""
    domain: Any = app.env.get_domain("py")

    def mend(found: re.Match[str]) -> str:
        parts = found[2].split(".")
        for start in range(len(parts)):
            end = "." + ".".join(parts[start:])
            for name, described in domain.objects.items():
                if (
                    f".{name}".endswith(end)
                    and not described.aliased
                    and found[1].endswith(f"{described.docname}.html")
                ):
                    return f'href="{found[1]}#{described.node_id}"'
        return found[0]

    if page.startswith("_modules/"):
        context["body"] = re.sub(r'href="([^"#]+)#([\w.]+)"', mend, context["body"])


def _is_in_description(node: nodes.Node | None) -> bool:
    while node is not None:
        if isinstance(node, addnodes.desc):
            return True
        node = node.parent
    return False


def _no_type(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep the first line of a property's docstring together: napoleon takes what precedes a colon for its type."""
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the reading of pages and of docstrings."""
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", _generated)
    app.connect("missing-reference", _soften)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _no_type, priority=400)  # before napoleon, 500
    app.connect("html-page-context", _mend_back_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
