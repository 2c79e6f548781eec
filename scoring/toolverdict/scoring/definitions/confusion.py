"""Which tools were called in place of which, as ``summary.json`` has it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from toolverdict.scoring.errors import InputError


def read_confusion(out: Path) -> Mapping[str, Mapping[str, int]] | None:
    """How often which tool was called (inner) where another was expected (outer).

    None where no cases were scored: then nobody knows what was expected.

    Raises:
        InputError: ``summary.json`` is missing or damaged.
    """
    path = out / "summary.json"
    try:
        document: Any = orjson.loads(path.read_bytes())
        cases, confusion = document["cases"], document["confusion"]
        counts = {
            str(expected): {str(called): int(count) for called, count in row.items()}
            for expected, row in confusion.items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{path}: cannot be read; write it with: toolverdict score LAKE --out {out}"
        ) from error
    return None if cases is None else counts
