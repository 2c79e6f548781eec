"""Which trajectory played which case, for agents whose spans do not say (``--case-map``)."""

from collections.abc import Mapping
from pathlib import Path

from toolverdict.instrument.yaml_files import YamlProblem, read_yaml
from toolverdict.scoring.cases.files import read_text
from toolverdict.scoring.errors import InputError


def load_case_map(path: Path) -> Mapping[str, str]:
    """An object of trace or conversation ids to case ids, from YAML or JSON (which is YAML).

    Raises:
        InputError: the file is missing or is no such object.
    """
    try:
        parsed = read_yaml(read_text(path)).data
    except YamlProblem as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        raise InputError(f"{where}: {error.problem}") from error
    if not isinstance(parsed, dict) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in parsed.items()
    ):
        raise InputError(
            f"{path}: expected an object of trace or conversation ids to case ids, all texts"
        )
    return parsed
