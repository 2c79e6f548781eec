"""The tool catalogue: what each tool was when somebody looked at it, pinned by two hashes.

``schema_hash`` is of what calls may hold, without titles, descriptions and examples.
``definition_hash`` is of all that a model reads and a policy relies on: name, title, description,
schemas, annotations and labels. Both are ``sha256:`` over RFC 8785 JSON.

A lock file (version 1) holds whole definitions, so that a later state can be compared with it
(``diff``). Whoever reads it checks every hash again: a pin that was edited, cut or half
written is an error and never an empty catalogue.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import rfc8785

from toolverdict.instrument.errors import ToolverdictError

if TYPE_CHECKING:
    from toolverdict.instrument.policy.check import KnownTool

LOCK_VERSION: Final = 1
"""The version of the lock file that this module writes, and the newest that it reads."""

MAX_FILE_BYTES: Final = 50_000_000
MAX_DEFINITION_CHARS: Final = 1_000_000
_MAX_DEPTH: Final = 64
_UNSEEN: Final = frozenset({"title", "description", "examples", "$comment"})
_MAPS_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
_DATA: Final = frozenset({"enum", "const", "default"})


class CatalogueError(ToolverdictError, ValueError):
    """A catalogue cannot be read or made; nothing may rely on it.

    Args:
        source: The file or module.
        problem: What is wrong, and what to do.
    """

    def __init__(self, source: str, problem: str = "") -> None:
        super().__init__(source, problem)
        self.source = source
        self.problem = problem

    def __str__(self) -> str:
        """One line: where, and what is wrong."""
        return ": ".join(part for part in (self.source, self.problem) if part)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as it was described.

    Args:
        name: Its name.
        schema: The JSON Schema of its arguments.
        server: The server that it comes from; None for tools of the process itself.
        version: The version that its author declares.
        description: What the model reads about it.
        title: Its title.
        output_schema: The JSON Schema of its result.
        annotations: Hints of an MCP server.
        labels: What it can do, sorted.
    """

    name: str
    schema: Mapping[str, Any]
    server: str | None = None
    version: str | None = None
    description: str | None = None
    title: str | None = None
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] | None = None
    labels: tuple[str, ...] = ()
    schema_hash: str = field(init=False)
    definition_hash: str = field(init=False)

    def __post_init__(self) -> None:
        """Hash it.

        Raises:
            CatalogueError: It has no hash: too deep, or a number that JSON readers would round.
        """
        try:
            object.__setattr__(self, "schema_hash", _hash(without_annotations(self.schema)))
            object.__setattr__(self, "definition_hash", _hash(self.definition))
            if len(json.dumps(self.definition)) > MAX_DEFINITION_CHARS:
                raise ValueError("is too large")
        except (rfc8785.CanonicalizationError, RecursionError, TypeError, ValueError) as error:
            problem = f"has no hash ({type(error).__name__}); its definition is no plain JSON of a sane size"
            raise CatalogueError(f"tool {self.name!r}", problem) from error

    @property
    def key(self) -> str:
        """What it is listed under: its name, with its server in front if it has one."""
        return self.name if self.server is None else f"{self.server}/{self.name}"

    @property
    def definition(self) -> dict[str, Any]:
        """What ``definition_hash`` is of."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": dict(self.schema),
            "outputSchema": None if self.output_schema is None else dict(self.output_schema),
            "annotations": None if self.annotations is None else dict(self.annotations),
            "labels": sorted(self.labels),
        }


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Tools, one of each key, in the order of their keys."""

    tools: tuple[Tool, ...]

    @classmethod
    def of(cls, tools: Iterable[Tool], *, source: str = "catalogue") -> Self:
        """A catalogue of these tools.

        Raises:
            CatalogueError: Two tools have the same server and name.
        """
        ordered = tuple(sorted(tools, key=lambda tool: tool.key))
        twice = [k for k, n in Counter(tool.key for tool in ordered).items() if n > 1]
        if twice:
            raise CatalogueError(source, f"two tools are called {twice[0]!r}")
        return cls(ordered)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a lock file, and check every hash in it.

        Raises:
            CatalogueError: It cannot be read, is newer than this module, or is corrupt.
        """
        source = os.fspath(path)
        document = read_json(source)
        if not isinstance(document, dict) or "tools" not in document or "version" not in document:
            raise CatalogueError(source, "is no lock file; make one with: toolverdict catalog pin")
        version = document["version"]
        if type(version) is not int or version != LOCK_VERSION:
            raise CatalogueError(source, f"this toolverdict reads lock version {LOCK_VERSION}")
        return cls._of_lock(document, source)

    @classmethod
    def _of_lock(cls, document: Mapping[str, Any], source: str) -> Self:
        try:
            pinned = {key: _of_entry(entry) for key, entry in document["tools"].items()}
            whole = cls.of(pinned.values(), source=source)
            right = all(
                tool.key == key
                and tool.schema_hash == document["tools"][key]["schema_hash"]
                and tool.definition_hash == document["tools"][key]["definition_hash"]
                for key, tool in pinned.items()
            )
            right = right and document.get("digest") == whole.digest
        except (CatalogueError, KeyError, TypeError, AttributeError) as error:
            raise CatalogueError(
                source, f"is corrupt ({type(error).__name__}); {_AGAIN}"
            ) from error
        if not right:
            raise CatalogueError(source, f"is corrupt: a hash in it does not fit; {_AGAIN}")
        return whole

    @property
    def digest(self) -> str:
        """The digest of the whole: a tool that is missing, or has another version, changes it."""
        return _hash([[tool.key, tool.version, tool.definition_hash] for tool in self.tools])

    def lock(self) -> str:
        """The text of a lock file; equal catalogues have equal texts."""
        document = {
            "version": LOCK_VERSION,
            "digest": self.digest,
            "tools": {
                tool.key: {
                    "server": tool.server,
                    "version": tool.version,
                    "schema_hash": tool.schema_hash,
                    "definition_hash": tool.definition_hash,
                    **tool.definition,
                }
                for tool in self.tools
            },
        }
        return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def known_tools(self) -> "dict[str, KnownTool]":
        """What a policy is checked against."""
        from toolverdict.instrument.policy.check import KnownTool

        return {
            tool.key: KnownTool(frozenset(tool.labels), _parameters(tool.schema))
            for tool in self.tools
        }


_AGAIN: Final = "look at the tools again, and pin them again"


def without_annotations(schema: Any, depth: int = 0) -> Any:
    """A schema without what only people and models read; a property may be called ``title``."""
    if depth > _MAX_DEPTH:
        raise ValueError("a schema is nested too deep")
    if isinstance(schema, list):
        return [without_annotations(item, depth + 1) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _UNSEEN:
            continue
        if key in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            plain[key] = {name: without_annotations(s, depth + 1) for name, s in value.items()}
        elif key in _DATA:
            plain[key] = value
        elif key == "required" and isinstance(value, list):
            plain[key] = sorted(value, key=str)
        else:
            plain[key] = without_annotations(value, depth + 1)
    return plain


def read_json(source: str) -> Any:
    """The JSON in a file.

    Raises:
        CatalogueError: It cannot be read, is not JSON, or has a key twice in one object.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a key occurs twice in one object")
        return made

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        with open(source, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"is larger than {MAX_FILE_BYTES} bytes")
        return json.loads(content, object_pairs_hook=once, parse_constant=refuse)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or type(error).__name__}"
        raise CatalogueError(source, problem) from error
    except RecursionError as error:
        raise CatalogueError(source, "is nested too deep") from error
    except ValueError as error:
        raise CatalogueError(source, f"is not the JSON that it should be: {error}") from error


def _of_entry(entry: Mapping[str, Any]) -> Tool:
    labels = entry["labels"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise TypeError("labels are a list of texts")
    return Tool(
        name=_text(entry["name"]),
        schema=_object(entry["inputSchema"]),
        server=_optional(entry["server"]),
        version=_optional(entry["version"]),
        description=_optional(entry["description"]),
        title=_optional(entry["title"]),
        output_schema=_object_or_none(entry["outputSchema"]),
        annotations=_object_or_none(entry["annotations"]),
        labels=tuple(labels),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("expected a text")
    return value


def _optional(value: Any) -> str | None:
    return None if value is None else _text(value) if value != "" else ""


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    return value


def _object_or_none(value: Any) -> Mapping[str, Any] | None:
    return None if value is None else _object(value)


def _parameters(schema: Mapping[str, Any]) -> frozenset[str] | None:
    properties = schema.get("properties")
    if schema.get("additionalProperties", True) is not False and not properties:
        return None
    return frozenset(properties or ())


def _hash(content: Any) -> str:
    canonical: bytes = rfc8785.dumps(content)
    return "sha256:" + hashlib.sha256(canonical).hexdigest()
