"""Cases as a file of ours: YAML, JSON or JSON lines, as its name says."""

import json
from collections.abc import Iterable
from pathlib import Path

import yaml

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers.imported import CaseDict


def write_cases(path: Path, cases: Iterable[CaseDict]) -> None:
    """Writes a case file.

    Raises:
        InputError: the file cannot be written, or its name does not say what it is.
    """
    listed = list(cases)
    if path.suffix in (".yaml", ".yml"):
        text = yaml.dump(listed, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=100)
    elif path.suffix == ".json":
        text = json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
    elif path.suffix == ".jsonl":
        text = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in listed)
    else:
        raise InputError(f"{path}: call the case file .yaml, .json or .jsonl")
    try:
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        why = getattr(error, "strerror", None) or "holds a text that is no Unicode"
        raise InputError(f"{path}: cannot be written: {why}") from error


class _Plain(yaml.SafeDumper):
    """Without anchors, which people find hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True
