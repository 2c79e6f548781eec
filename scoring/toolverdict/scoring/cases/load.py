"""Case files: two formats, as YAML, JSON or JSON lines.

Format A::

    {"case_id": ..., "expected_calls": [{"tool": ..., "args_match": {...}}],
     "forbidden_calls": ["name", ...]}

Format B::

    {"id": ..., "input": ..., "expected_tool_calls": [{"tool": ..., "args" | "args_subset": {...}}],
     "forbidden_tool_calls": [{"tool": ..., "reason": ..., "args_subset": {...}}]}

A file holds one case, a list of cases, or (``.jsonl``) one case a line; a folder holds such files.
A key that is nearly one of these is an error, since a misspelt ``forbidden_calls`` would let
everything pass; any other unknown key is somebody's own note and is named in a warning.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from toolverdict.instrument.yaml_files import YamlDocument, YamlProblem, read_yaml
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.errors import InputError

_MAX_FILE_BYTES = 256 * 1024 * 1024
_SUFFIXES = (".jsonl", ".json", ".yaml", ".yml")
_A = {"case_id": "id", "expected_calls": "expected", "forbidden_calls": "forbidden"}
_B = {"id": "id", "expected_tool_calls": "expected", "forbidden_tool_calls": "forbidden"}
_EITHER = ("input", "meta")
_ARGUMENT_KEYS = ("args", "args_match", "args_subset")
_CALL_KEYS = ("tool", *_ARGUMENT_KEYS)
_FORBIDDEN_KEYS = ("tool", "args_subset", "reason")


@dataclass(frozen=True)
class CaseSet:
    """Cases by id, the digest of what was read, and keys that nothing here understands."""

    cases: Mapping[str, Case]
    digest: str
    unknown_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in which file something stands; the line is known where the file is YAML."""

    file: str
    document: YamlDocument | None = None
    path: tuple[int | str, ...] = ()

    def at(self, *path: int | str) -> "_Place":
        return _Place(self.file, self.document, (*self.path, *path))

    def error(self, problem: str) -> InputError:
        keys = ".".join(str(part) for part in self.path)
        where = self.document.place(self.path) if self.document is not None else keys
        return InputError(
            f"{self.file}: {where}: {problem}" if where else f"{self.file}: {problem}"
        )


def load_cases(path: Path) -> CaseSet:
    """All cases of a file or folder.

    Raises:
        InputError: a file is missing or unreadable, is no case, or gives one id to two different
            cases; the message names file, line or position, key and what was expected.
    """
    reader = _Reader()
    for file in _files(path):
        for place, document in _documents(file):
            reader.read(place, document)
    if not reader.cases:
        raise InputError(f"{path}: holds no case; expected {', '.join(_SUFFIXES)} with cases")
    canonical = json.dumps([case.model_dump() for case in reader.cases.values()], sort_keys=True)
    digest = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    return CaseSet(reader.cases, digest, tuple(sorted(reader.unknown_keys)))


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
        if path.is_file():
            return [path]
    except OSError as error:
        raise InputError(f"{str(path)[:200]}: cannot be read: {error.strerror}") from error
    raise InputError(f"{path}: no such case file or folder; check --cases")


def read_text(path: Path) -> str:
    """A file that a user wrote, as text.

    Raises:
        InputError: it is missing, unreadable, no UTF-8, or far larger than anything written by hand.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise InputError(f"{path}: is larger than {_MAX_FILE_BYTES} bytes; split it")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        where = str(path)[:200]
        raise InputError(f"{where}: cannot be read as UTF-8 text: {_one_line(error)}") from error


def _documents(file: Path) -> Iterator[tuple[_Place, Any]]:
    """Each case of a file with the place to name when it is wrong."""
    text = read_text(file)
    if file.suffix == ".jsonl":
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield _Place(f"{file}:{number}"), _parse_json(f"{file}:{number}", line)
        return
    document = None if file.suffix == ".json" else _parse_yaml(file, text)
    parsed = _parse_json(str(file), text) if document is None else document.data
    if isinstance(parsed, list):
        for number, case in enumerate(parsed):
            yield _Place(str(file), document, (number,)), case
    else:
        yield _Place(str(file), document), parsed


def _parse_json(where: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON: {_one_line(error)}") from error


def _parse_yaml(file: Path, text: str) -> YamlDocument:
    try:
        return read_yaml(text)
    except YamlProblem as error:
        where = f"{file}:{error.line}" if error.line else str(file)
        raise InputError(f"{where}: {error.problem}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for key, value in pairs:
        if key in keys:
            raise ValueError(f"key {key!r} stands twice in one object")
        keys[key] = value
    return keys


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


class _Reader:
    """Turns documents into cases and remembers what it saw."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.unknown_keys: set[str] = set()

    def read(self, place: _Place, document: Any) -> None:
        """Adds the case of one document."""
        if not isinstance(document, dict):
            raise place.error(f"expected an object with a case, got {_kind(document)}")
        if (problem := _unwritable(document)) is not None:
            raise place.error(problem)
        keys = _A if "case_id" in document or "expected_calls" in document else _B
        case = self._known(place, document, (*keys, *_EITHER))
        if not case.keys() & (keys.keys() - {"id", "case_id"}):
            *_, expected, forbidden = keys
            raise place.error(
                f"is no case: it has neither {expected} nor {forbidden}; a case in which nothing "
                f"should be called says {expected}: []"
            )
        raw = {keys.get(key, key): value for key, value in case.items() if key != "meta"}
        for key, field in keys.items():
            if key in case and field != "id":
                known = _CALL_KEYS if field == "expected" else _FORBIDDEN_KEYS
                raw[field] = self._calls(place.at(key), case[key], known)
        try:
            made = Case.model_validate(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            names = {field: key for key, field in keys.items()}
            path = tuple(names.get(str(p), p) if n == 0 else p for n, p in enumerate(first["loc"]))
            raise place.at(*path).error(first["msg"]) from None
        if self.cases.setdefault(made.id, made).model_dump_json() != made.model_dump_json():
            raise place.error(f"case id {made.id!r} stands for another case already")

    def _calls(self, place: _Place, calls: Any, known: tuple[str, ...]) -> list[dict[str, Any]]:
        # A text is iterable too: it must not fall apart into one-letter tools.
        if not isinstance(calls, list):
            raise place.error(f"expected a list of calls, got {_kind(calls)}")
        return [self._call(place.at(number), call, known) for number, call in enumerate(calls)]

    def _call(self, place: _Place, call: Any, known: tuple[str, ...]) -> dict[str, Any]:
        forbidden = known is _FORBIDDEN_KEYS
        if isinstance(call, str) and forbidden:
            return {"tool": call}
        if not isinstance(call, dict):
            raise place.error(f"expected an object with a tool, got {_kind(call)}")
        fields = self._known(place, call, known)
        arguments = [key for key in _ARGUMENT_KEYS if key in fields]
        if len(arguments) > 1:
            raise place.error(f"give one of {' or '.join(arguments)}, not both")
        result: dict[str, Any] = {k: v for k, v in fields.items() if k in ("tool", "reason")}
        for key in arguments:
            result["arguments"] = fields[key]
            if not forbidden:
                result["match"] = "exact" if key == "args" else "subset"
        return result

    def _known(
        self, place: _Place, document: dict[str, Any], known: tuple[str, ...]
    ) -> dict[str, Any]:
        """The keys that are known; a near miss of one is an error, others are remembered."""
        for key in sorted(document.keys() - set(known)):
            near = get_close_matches(str(key), known, n=1, cutoff=0.8)
            if near and near[0] not in document:
                raise place.at(key).error(f"unknown key {key!r}; did you mean {near[0]!r}?")
            self.unknown_keys.add(str(key))
        return {key: value for key, value in document.items() if key in known}


def _unwritable(value: Any) -> str | None:
    """Why a document cannot be compared with what a trace holds; None when it can."""
    try:
        orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError) as error:
        return f"holds a value that OTLP cannot carry: {_one_line(error)}"
    return None


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
