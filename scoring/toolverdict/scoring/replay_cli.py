"""``toolverdict policy replay``: read the inputs, decide, print, write."""

from pathlib import Path
from typing import Any, NamedTuple

import orjson
import typer
from rich.console import Console

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.approvals import NO_APPROVALS, Approvals
from toolverdict.scoring.replay import replay
from toolverdict.scoring.replay_output import DecisionsFile, print_replay


class ReplayInputs(NamedTuple):
    """What to decide again, and by what."""

    lake: str
    policy: Path
    against: Path | None = None
    audit: Path | None = None
    out: Path | None = None


def run_replay(inputs: ReplayInputs, *, as_json: bool) -> dict[str, Any]:
    """Decide the calls of a lake again, print what came out, and write ``--out``.

    Raises:
        PolicyError, InputError, LakeError: an input cannot be read, or the output not written.
    """
    policy = Policy.load(inputs.policy)
    against = Policy.load(inputs.against) if inputs.against is not None else None
    approvals = Approvals.read(inputs.audit) if inputs.audit is not None else NO_APPROVALS
    if inputs.out is None:
        document = replay(inputs.lake, policy, against, approvals).document()
    else:
        with DecisionsFile(inputs.out) as file:
            document = replay(inputs.lake, policy, against, approvals, file.add).document()
            file.finish(document)
    if as_json:
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print_replay(document, Console())
    return document
