"""The demo, top-down: start a collector, play, stop it, score, check, say where everything is."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.text import Text

from toolverdict.collector.testing import running_collector
from toolverdict.instrument.policy import Policy
from toolverdict.scenarios.demo.check import Outcome, check
from toolverdict.scenarios.demo.conversations import conversations
from toolverdict.scenarios.demo.play import play
from toolverdict.scoring import InputError, Inputs, score
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.terminal import print_results

_MARKER = ".toolverdict-demo"
_OURS = ("lake", "lake.stderr.txt", "results", "policy.yaml", "cases.yaml")


def run_demo(out: Path, console: Console) -> bool:
    """Plays the whole road into ``out``; what an earlier demo left there is replaced.

    Returns:
        Whether every planted failure was found at its span, and nothing else was.
    """
    _clear(out)
    for name in ("policy.yaml", "cases.yaml"):
        with as_file(files("toolverdict.scenarios.demo") / name) as source:
            shutil.copyfile(source, out / name)
    played = conversations()
    lake, results = out / "lake", out / "results"

    console.print(f"1. a collector listens; a refund agent plays {len(played)} conversations")
    with running_collector(lake) as collector:
        play(played, f"http://{collector.grpc}", out / "policy.yaml")
    console.print("2. the collector has stopped: every span it acknowledged is in Parquet")

    inputs = Inputs(lake, Policy.load(out / "policy.yaml"), load_cases(out / "cases.yaml"))
    score(inputs, results)
    console.print("3. scored:\n")
    print_results(results, console)

    outcomes = check(played, results)
    for line in _planted(outcomes):
        console.print(line, soft_wrap=True)
    right = all(outcome.right for outcome in outcomes)
    _say_what_next(out, outcomes, right, console)
    return right


def _clear(out: Path) -> None:
    """Makes the folder, without what an earlier demo left; files that are not ours stay.

    Raises:
        InputError: the folder is not empty and no demo made it, or it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not (out / _MARKER).exists():
            raise InputError(f"{out}: is not empty and no demo made it; name a new folder")
        (out / _MARKER).touch()
        for name in _OURS:
            path = out / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{out}: cannot be written: {error.strerror}; name another --out"
        ) from error


def _planted(outcomes: Sequence[Outcome]) -> Iterator[Text]:
    yield Text("What was planted, and where the scorer found it", style="bold")
    for outcome in outcomes:
        planted = outcome.conversation.planted
        mark = ("  ok   ", "green") if outcome.right else ("  MISS ", "bold red")
        what = f"{outcome.conversation.id}: "
        if planted is None:
            yield Text.assemble(mark, what, "nothing planted, passed" if outcome.right else "")
        elif outcome.span_id is None:
            yield Text.assemble(mark, what, planted.what, ", not found")
        else:
            beside = "reported, the task was done" if outcome.passed else "beside the root cause"
            how = "the root cause" if outcome.is_root_cause else beside
            found = f", {planted.category} at span {outcome.span_id}, {how}"
            yield Text.assemble(mark, what, planted.what, found)
    yield Text()


def _command() -> str:
    """How this command was called, so that what is recommended can be copied."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "toolverdict" else "python -m toolverdict"


def _say_what_next(out: Path, outcomes: Sequence[Outcome], right: bool, console: Console) -> None:
    planted = [o for o in outcomes if o.conversation.planted is not None]
    found = sum(o.right for o in planted)
    clean = len(outcomes) - len(planted)
    console.print(
        f"{found} of {len(planted)} planted failures found at their span; "
        f"{sum(o.right for o in outcomes) - found} of {clean} good conversations passed clean",
        style="bold green" if right else "bold red",
        soft_wrap=True,
    )
    console.print(
        f"""
{out / "lake"}: every span, as Parquet
{out / "results"}: calls, findings, verdicts (Parquet) and summary.json
{out / "policy.yaml"} and {out / "cases.yaml"}: what it was judged by

Try next: change a rule or a case and score the same lake again,
  {_command()} score {out / "lake"} --policy {out / "policy.yaml"} \\
    --cases {out / "cases.yaml"} --out {out / "results"}
or send your own agent's spans: {_command()} collect --data my-lake""",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
