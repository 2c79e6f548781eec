"""Case files become a set of cases: any mix of both formats, in YAML, JSON or JSON lines."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolverdict.instrument.catalogue.definitions import Catalogue
from toolverdict.instrument.names import bare_name
from toolverdict.scoring.cases.files import SUFFIXES, Place, documents
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.errors import InputError


@dataclass(frozen=True)
class CaseSet:
    """Cases by id, the digest of what was read, and keys that nothing here understands.

    ``places`` are where each case stands, for messages about it; ``silent`` are the cases that do not
    say what is expected.
    """

    cases: Mapping[str, Case]
    digest: str
    unknown_keys: tuple[str, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def with_catalogue(self, catalogue: Catalogue) -> "CaseSet":
        """The same, with arguments compared as the tools' schemas say where a case does not."""
        schemas = {tool.key: tool.schema for tool in catalogue.tools}
        for tool in catalogue.tools:
            schemas.setdefault(bare_name(tool.name), tool.schema)
        return replace(
            self, cases={name: _with_schemas(case, schemas) for name, case in self.cases.items()}
        )


def load_cases(path: Path, catalogue: Catalogue | None = None) -> CaseSet:
    """All cases of a file or folder.

    Args:
        path: the file or folder.
        catalogue: what is known of the tools, for how their arguments compare.

    Raises:
        InputError: a file is missing or unreadable, is no case, or gives one id to two different
            cases; the message names file, line or position, key and what was expected.
    """
    cases: dict[str, Case] = {}
    places: dict[str, Place] = {}
    unknown: set[str] = set()
    unsaid: set[str] = set()
    for place, document in documents(path):
        case, notes, silent = read_case(place, document)
        unknown |= notes
        if cases.setdefault(case.id, case).model_dump_json() != case.model_dump_json():
            raise place.error(
                f"case id {case.id!r} stands for another case already, at {places[case.id]}"
            )
        places.setdefault(case.id, place)
        unsaid |= {case.id} if silent else set()
    if not cases:
        raise InputError(f"{path}: holds no case; expected {', '.join(SUFFIXES)} with cases")
    canonical = json.dumps([case.model_dump() for case in cases.values()], sort_keys=True)
    digest = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
    loaded = CaseSet(cases, digest, tuple(sorted(unknown)), places, frozenset(unsaid))
    return loaded if catalogue is None else loaded.with_catalogue(catalogue)


def _with_schemas(case: Case, schemas: Mapping[str, Mapping[str, Any]]) -> Case:
    def bound(expected: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        return tuple(
            expectation if schema is None else expectation.with_schema(schema)
            for expectation in expected
            for schema in [schemas.get(expectation.tool, schemas.get(bare_name(expectation.tool)))]
        )

    ways = tuple(
        way.model_copy(update={"expected": bound(way.expected)}) for way in case.alternatives
    )
    return case.model_copy(update={"expected": bound(case.expected), "alternatives": ways})
