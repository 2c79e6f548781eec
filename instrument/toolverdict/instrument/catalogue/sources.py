"""Where the tools of a catalogue come from: decorated functions, models, and what servers list.

Recognised entries of a JSON file, alone, in a list, under ``tools``, or in a JSON-RPC ``result``:
MCP (``inputSchema``), Anthropic (``input_schema``) and OpenAI (``function.parameters``, or
``parameters`` beside ``type: function``). Whatever else stands there is an error: a tool that is
skipped is one that nobody looks at.
"""

import importlib
import inspect
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticOmit, core_schema

from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError, Tool, read_json
from toolverdict.instrument.decorators import MARK
from toolverdict.instrument.tools import ToolSpec


def catalogue_of(sources: Iterable[str]) -> Catalogue:
    """The tools of several sources.

    Args:
        sources: JSON files (``tools.json``, or ``server=tools.json`` to say whose they are), Python
            modules (``shop.tools``) and single things in them (``shop.tools:refund``).

    Raises:
        CatalogueError: One of them cannot be read, or has no tools.
    """
    found: list[Tool] = []
    for source in sources:
        tools = list(_of_source(source))
        if not tools:
            raise CatalogueError(source, "has no tools")
        found.extend(tools)
    return Catalogue.of(found, source=", ".join(sources))


def _of_source(source: str) -> Iterator[Tool]:
    server, _, path = source.rpartition("=")
    if path.endswith(".py"):
        raise CatalogueError(path, f"is a file; name its module instead: {_module_of(path)}")
    if path.endswith(".json") or os.path.exists(path):
        return tools_of_json(read_json(path), source=path, server=server or None)
    return _of_module(source)


def _module_of(path: str) -> str:
    """The name by which a file of Python is imported from here."""
    return os.path.relpath(path).removesuffix(".py").replace(os.sep, ".")


def _of_module(source: str) -> Iterator[Tool]:
    name, _, attribute = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as python -m does: tools lie where one is
    try:
        module = importlib.import_module(name)
        things = [getattr(module, attribute)] if attribute else list(vars(module).values())
    except (Exception, SystemExit) as error:
        # A module that ends the process when it is imported would end it with success.
        problem = f"cannot be imported ({type(error).__name__}: {error})"
        raise CatalogueError(source, problem) from error
    for thing in things:
        if attribute and isinstance(thing, type) and issubclass(thing, BaseModel):
            yield tool_of_model(thing)
        elif attribute or spec_of(thing) is not None:
            yield tool_of_function(thing)


def spec_of(function: Any) -> ToolSpec | None:
    """What ``@tool`` knows about a function; None if it was not decorated."""
    marked = getattr(function, MARK, None)
    return marked if isinstance(marked, ToolSpec) else None


def tool_of_function(function: Callable[..., Any]) -> Tool:
    """The tool that a function is: its signature as a closed schema, its docstring as description.

    Raises:
        CatalogueError: It is not a function, or its annotations cannot be resolved.
    """
    spec = spec_of(function)
    name = spec.name if spec is not None else getattr(function, "__name__", "")
    try:
        original = inspect.unwrap(function)
        parameters = (
            spec.binder.parameters
            if spec is not None
            else list(inspect.signature(original).parameters.values())
        )
        schema = _schema_of(name, parameters, _hints(original))
    except Exception as error:
        problem = f"has no schema ({type(error).__name__}: {error})"
        raise CatalogueError(name or repr(function), problem) from error
    return Tool(
        name=name,
        schema=schema,
        version=spec.schema_version if spec is not None else None,
        description=inspect.getdoc(original),
        labels=spec.labels if spec is not None else (),
    )


def tool_of_model(model: type[BaseModel], *, name: str | None = None) -> Tool:
    """The tool whose arguments are a pydantic model."""
    return Tool(
        name=name or model.__name__,
        schema=_made_by(model),
        description=inspect.getdoc(model) or None,
    )


def tools_of_json(
    document: Any, *, source: str = "tools", server: str | None = None
) -> Iterator[Tool]:
    """The tools that a JSON document lists.

    Raises:
        CatalogueError: An entry is none of the known kinds.
    """
    if isinstance(document, dict) and isinstance(document.get("result"), dict):
        document = document["result"]
    if isinstance(document, dict) and document.get("nextCursor"):
        raise CatalogueError(source, "is one page of several (nextCursor); list all of them")
    entries = document.get("tools", [document]) if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise CatalogueError(source, "is no list of tools")
    for index, entry in enumerate(entries):
        yield _of_entry(entry, f"{source}, tool {index}", server)


def _of_entry(entry: Any, source: str, server: str | None) -> Tool:
    if not isinstance(entry, dict):
        raise CatalogueError(source, "is no object")
    described = entry.get("function", entry) if entry.get("type") == "function" else entry
    if not isinstance(described, dict):
        raise CatalogueError(source, "is no object")
    name = described.get("name")
    if not isinstance(name, str) or not name:
        raise CatalogueError(source, "has no name")
    keys = [key for key in ("inputSchema", "input_schema", "parameters") if key in described]
    if len(keys) > 1 or (not keys and entry.get("type") != "function"):
        problem = "is no MCP, OpenAI or Anthropic tool: it needs one of inputSchema, input_schema"
        raise CatalogueError(f"{source} ({name})", f"{problem} or parameters")
    schema = described[keys[0]] if keys else {"type": "object", "properties": {}}
    output, notes = described.get("outputSchema"), described.get("annotations")
    texts = [described.get(key) for key in ("description", "title", "version")]
    if not isinstance(schema, dict) or not all(t is None or isinstance(t, str) for t in texts):
        raise CatalogueError(f"{source} ({name})", "has a schema or a text of the wrong type")
    if not all(part is None or isinstance(part, dict) for part in (output, notes)):
        raise CatalogueError(f"{source} ({name})", "has outputSchema or annotations of wrong type")
    meta = described.get("_meta")
    version = (
        texts[2] if texts[2] is not None or not isinstance(meta, dict) else meta.get("version")
    )
    return Tool(
        name=name,
        schema=schema,
        server=server,
        version=version if isinstance(version, str) else None,
        description=texts[0],
        title=texts[1],
        output_schema=output,
        annotations=notes,
    )


def _hints(function: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        # Names that only a type checker sees: then there is no type to say.
        return {}


def _schema_of(
    name: str, parameters: list[inspect.Parameter], hints: Mapping[str, Any]
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    takes_any = False
    for index, parameter in enumerate(parameters):
        hint = hints.get(parameter.name, parameter.annotation)
        if hint is parameter.empty or isinstance(hint, str):
            hint = Any
        default: Any = ... if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            hint, default = types.GenericAlias(list, (hint,)), []
        # Named by number: a parameter may be called what a model's own attribute is called.
        fields[f"p{index}"] = (hint, Field(default, alias=parameter.name))
    config = ConfigDict(arbitrary_types_allowed=True, extra="allow" if takes_any else "forbid")
    return _made_by(create_model(name, __config__=config, **fields))


class _Lenient(GenerateJsonSchema):
    """Says the Python type where there is no JSON for it."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012

    def handle_invalid_for_json_schema(
        self, schema: core_schema.CoreSchema, error_info: str
    ) -> JsonSchemaValue:
        kind = schema.get("cls")
        if not isinstance(kind, type):
            raise PydanticOmit
        return {"x-python-type": f"{kind.__module__}.{kind.__qualname__}"}


def _made_by(model: type[BaseModel]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = model.model_json_schema(by_alias=True, schema_generator=_Lenient)
    made.pop("title", None)
    return _untitled(made)


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that are made of names."""
    for part in (schema, *schema.get("$defs", {}).values()):
        for described in part.get("properties", {}).values():
            if isinstance(described, dict):
                described.pop("title", None)
    return schema
