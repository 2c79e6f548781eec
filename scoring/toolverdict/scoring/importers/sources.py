"""The files of other tools, as documents with places: JSON, JSON lines, YAML, or literals in Python.

Unlike our own case files, a list is one document: for some sources it is a single case.
"""

import ast
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolverdict.instrument.yaml_files import YamlProblem, read_yaml
from toolverdict.scoring.cases.files import Place, one_line, read_text
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers.nodes import Node

SUFFIXES = (".json", ".jsonl", ".py", ".yaml", ".yml")


def documents(path: Path) -> Iterator[Node]:
    """Each document of a file, or of all files in a folder that end on one of :data:`SUFFIXES`.

    Raises:
        InputError: a file is missing, unreadable, or not what its name says.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                yield from _documents(file)
    else:
        yield from _documents(path)


def _documents(file: Path) -> Iterator[Node]:
    if file.suffix not in SUFFIXES:
        raise InputError(f"{file}: cannot be imported; expected one of {', '.join(SUFFIXES)}")
    text = read_text(file)
    if file.suffix in (".yaml", ".yml"):
        yield _yaml(file, text)
    elif file.suffix == ".py":
        yield _python(file, text)
    elif file.suffix == ".jsonl" or _is_lines(text):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                where = f"{file}:{number}"
                yield Node(Place(where), _json(where, line))
    else:
        yield Node(Place(str(file)), _json(str(file), text))


def _is_lines(text: str) -> bool:
    """Whether a text is JSON lines, though its file is called ``.json``: BFCL's are."""
    lines = text.strip().split("\n", 2)
    if len(lines) < 2:
        return False
    try:
        json.loads(lines[0])
        json.loads(lines[1])
    except (ValueError, RecursionError):
        return False
    return True


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON: {one_line(error)}") from error


def _yaml(file: Path, text: str) -> Node:
    try:
        document = read_yaml(text)
    except YamlProblem as error:
        where = f"{file}:{error.line}" if error.line else str(file)
        raise InputError(f"{where}: {error.problem}") from error
    return Node(Place(str(file), document), document.data)


def _python(file: Path, text: str) -> Node:
    """The calls of ``Task`` in a module, read and never run: each an object of its arguments."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # the source's own style
            tree = ast.parse(text)
        tasks = [
            _literal(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _called(node) == "Task"
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{file}:{line}" if line else str(file)
        raise InputError(f"{where}: cannot be read as literals: {one_line(error)}") from error
    return Node(Place(str(file)), tasks)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _literal(node: ast.expr) -> Any:
    """A literal, in which a call with named arguments is an object of these."""
    if isinstance(node, ast.Call):
        if node.args or any(keyword.arg is None for keyword in node.keywords):
            raise _NoLiteral(node)
        return {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        if any(key is None for key in node.keys):
            raise _NoLiteral(node)
        return {
            ast.literal_eval(key): _literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NoLiteral(node) from None


class _NoLiteral(ValueError):
    """An expression that would have to be run."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__("a value is computed; write it out")
        self.lineno = node.lineno
