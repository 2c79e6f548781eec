"""Which sources can be imported, and how a file of one becomes cases."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers.adk import read_adk
from toolverdict.scoring.importers.agentevals import read_agentevals
from toolverdict.scoring.importers.bfcl import read_bfcl
from toolverdict.scoring.importers.deepeval import read_deepeval
from toolverdict.scoring.importers.imported import CaseDict, Imported, Losses
from toolverdict.scoring.importers.nodes import Node
from toolverdict.scoring.importers.promptfoo import read_promptfoo
from toolverdict.scoring.importers.sources import documents
from toolverdict.scoring.importers.strictness import Strictness
from toolverdict.scoring.importers.tau_bench import read_tau_bench

Importer = Callable[[Node, Losses], Iterator[tuple[Place, CaseDict]]]
"""Reads one document: cases, each with the place of what it was made of. A case without an id gets
one from its file."""

IMPORTERS: Mapping[str, Importer] = {
    "adk": read_adk,
    "agentevals": read_agentevals,
    "bfcl": read_bfcl,
    "deepeval": read_deepeval,
    "promptfoo": read_promptfoo,
    "tau-bench": read_tau_bench,
}


def import_cases(path: Path, source: str, strictness: Strictness | None = None) -> Imported:
    """The cases of a file or folder of another tool.

    Args:
        path: the file or folder.
        source: a name in :data:`IMPORTERS`.
        strictness: how the cases are judged; by default as the source's evaluator does.

    Raises:
        InputError: the source is unknown, a file cannot be read, or is not of that source; the
            message names file, line or position, and what was expected.
    """
    importer = IMPORTERS.get(source)
    if importer is None:
        raise InputError(f"unknown source {source!r}; known are {', '.join(IMPORTERS)}")
    strictness = strictness or Strictness()
    losses = Losses()
    found: dict[str, CaseDict] = {}
    for number, (place, case) in enumerate(_read(path, importer, losses)):
        made = strictness.applied({"id": f"{path.stem}_{number}", **case})
        read_case(Place(str(place)), made)
        _keep(found, made, place, losses)
    if not found:
        why = next(losses.lines(), "")
        raise InputError(f"{path}: holds no case of {source}" + (f"; {why}" if why else ""))
    return Imported(tuple(found.values()), tuple(losses.lines()))


def _read(path: Path, importer: Importer, losses: Losses) -> Iterable[tuple[Place, CaseDict]]:
    for document in documents(path):
        yield from importer(document, losses)


def _keep(found: dict[str, CaseDict], case: CaseDict, place: Place, losses: Losses) -> None:
    """Adds a case; one that was there already, since a task was run several times, is one case."""
    wanted, number = case["id"], 1
    while (other := found.get(case["id"])) is not None:
        if _content(other) == _content(case):
            return
        number += 1
        case = {**case, "id": f"{wanted}~{number}"}
    if number > 1:
        losses.add(place, f"the id {wanted!r} stands for another case, too: this is {case['id']!r}")
    found[case["id"]] = case


def _content(case: CaseDict) -> str:
    return json.dumps({key: value for key, value in case.items() if key != "id"}, sort_keys=True)
