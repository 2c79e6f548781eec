"""Files that a person wrote, as documents that know where in which file they stand.

A file holds one case, a list of cases, or (``.jsonl``) one case a line; a folder holds such files.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolverdict.instrument.yaml_files import YamlDocument, YamlProblem, read_yaml
from toolverdict.scoring.errors import InputError

SUFFIXES = (".jsonl", ".json", ".yaml", ".yml")
_MAX_FILE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which file something stands; the line is known where the file is YAML or JSONL."""

    file: str
    document: YamlDocument | None = None
    path: tuple[int | str, ...] = ()

    def at(self, *path: int | str) -> "Place":
        """The place of something inside this."""
        return Place(self.file, self.document, (*self.path, *path))

    def __str__(self) -> str:
        """``cases.yaml: line 4, expected_tool_calls.0.tool``."""
        keys = ".".join(str(part) for part in self.path)
        where = self.document.place(self.path) if self.document is not None else keys
        return f"{self.file}: {where}" if where else self.file

    def error(self, problem: str) -> InputError:
        """The one line to tell the person who wrote it."""
        return InputError(f"{self}: {problem}")


def documents(path: Path) -> Iterator[tuple[Place, Any]]:
    """Each document of a file, or of all files in a folder, with its place.

    Raises:
        InputError: a file is missing, unreadable, or not what its name says.
    """
    for file in _files(path):
        yield from _documents(file)


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
        raise InputError(f"{where}: cannot be read as UTF-8 text: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        if path.is_file():
            return [path]
    except OSError as error:
        raise InputError(f"{str(path)[:200]}: cannot be read: {error.strerror}") from error
    raise InputError(f"{path}: no such case file or folder; check --cases")


def _documents(file: Path) -> Iterator[tuple[Place, Any]]:
    text = read_text(file)
    if file.suffix == ".jsonl":
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield Place(f"{file}:{number}"), _parse_json(f"{file}:{number}", line)
        return
    document = None if file.suffix == ".json" else _parse_yaml(file, text)
    parsed = _parse_json(str(file), text) if document is None else document.data
    if isinstance(parsed, list):
        for number, case in enumerate(parsed):
            yield Place(str(file), document, (number,)), case
    else:
        yield Place(str(file), document), parsed


def _parse_json(where: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON: {one_line(error)}") from error


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
