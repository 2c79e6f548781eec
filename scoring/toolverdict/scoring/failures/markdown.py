"""The failure report for people, as Markdown.

Names and messages come from traces: whoever wrote them may want to forge a heading, a link, an
image or a mention. They stand in code spans, whose fence is longer than any run of backticks in
them, or are escaped; line breaks and what cannot be seen become visible escapes.
"""

import re
from collections.abc import Iterator
from typing import Final

from toolverdict.scoring.failures.report import Drawn, Event, Evidence, Report
from toolverdict.scoring.terminal import plain

_MOST_NAME_CHARS: Final = 80
_MOST_SENTENCE_CHARS: Final = 400
_MOST_VALUE_CHARS: Final = 2000
_MOST_STRATA: Final = 100
_BACKTICKS: Final = re.compile("`+")
_PUNCTUATION: Final = re.compile(r"[!-/:-@\[-`{-~]")


def as_markdown(report: Report) -> str:
    """The whole report."""
    return "\n".join(_lines(report)) + "\n"


def code(text: object, most: int = _MOST_NAME_CHARS) -> str:
    """A text from a trace as a code span."""
    shown = plain(text, most)
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if not shown.strip() or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown or '(empty)'}{pad}{fence}"


def escaped(text: object, most: int = _MOST_SENTENCE_CHARS) -> str:
    """A sentence that may hold texts from a trace: nothing in it is markup, a link or a mention."""
    shown = _PUNCTUATION.sub(lambda match: "\\" + match[0], plain(text, most))
    # What programs find in plain text on their own: links, addresses, mentions, issue numbers.
    shown = shown.replace("\\@", "&#64;").replace("\\#", "&#35;").replace("\\:", "&#58;")
    return re.sub(r"(?i)\bwww\\\.", "www&#46;", shown)


def _lines(report: Report) -> Iterator[str]:
    drawn = len(report.drawn)
    yield "# Failure report"
    yield ""
    yield (
        f"{report.failures} trajectories failed; {drawn} of them are told here, drawn by "
        f"{', '.join(report.by)} with seed {report.seed}."
    )
    if report.strata_not_drawn:
        yield ""
        yield (
            f"Of {report.strata_not_drawn} strata nothing was drawn: shares are known from their "
            "sizes below, and nothing else is known of them. Draw more to see them."
        )
    yield from _repeats(report)
    yield from _reactions(report)
    if not report.failures:
        return
    yield ""
    yield from _strata(report)
    for number, one in enumerate(report.drawn, start=1):
        yield ""
        yield from _drawn(number, one)


def _repeats(report: Report) -> Iterator[str]:
    """What calls that were made again cost, by cause."""
    overview = report.overview
    if not overview.repeats:
        return
    yield from ("", "## Calls made again", "")
    for kind, cost in overview.repeats.items():
        share = cost.calls / overview.calls
        known = [f"{cost.seconds:.3f} s" + _of(cost.timed, cost.calls)] if cost.timed else []
        if cost.counted:
            known.append(f"{cost.tokens} tokens" + _of(cost.counted, cost.calls))
        calls = "1 call" if cost.calls == 1 else f"{cost.calls} calls"
        yield f"- {kind.replace('_', ' ')}: {', '.join([f'{calls} ({share:.1%})', *known])}"
    if overview.unseen:
        calls = "1 call" if overview.unseen == 1 else f"{overview.unseen} calls"
        yield (
            f"- of {calls} neither arguments nor their hash were recorded: nothing shows whether "
            "they repeat others"
        )


def _reactions(report: Report) -> Iterator[str]:
    """What agents did after results that were of no use, by kind of result."""
    by_outcome: dict[str, list[str]] = {}
    for one in report.overview.reactions:
        told = f"{_DID.get(one.reaction, one.reaction)} {one.calls}"
        by_outcome.setdefault(one.outcome, []).append(told)
    if not by_outcome:
        return
    yield from ("", "## After results of no use", "")
    for outcome, reactions in by_outcome.items():
        yield f"- after {outcome.replace('_', ' ')}: {', '.join(reactions)}"


def _of(known: int, calls: int) -> str:
    return "" if known == calls else f" (known of {known})"


_DID: Final = {
    "retry_same": "made the same call again",
    "retry_changed": "made it again, changed",
    "retry": "made it again",
    "other_tool": "called another tool",
    "tell_user": "answered",
    "stop": "stopped",
    "end": "answered or stopped",
    "went_on": "went on as if it had succeeded",
}


def _strata(report: Report) -> Iterator[str]:
    yield "## Strata"
    yield ""
    for stratum in report.strata[:_MOST_STRATA]:
        names = ", ".join(
            f"{by} {code(name)}" for by, name in zip(report.by, stratum.key, strict=True)
        )
        share = stratum.size / report.failures
        stands = "" if stratum.each is None else f", each for {stratum.each:g}"
        weighted = (
            ""
            if stratum.weight is None or stratum.weight == stratum.size
            else f", standing for {stratum.weight:g} with sampling"
        )
        yield f"- {names}: {stratum.size} ({share:.1%}){weighted}; {len(stratum.drawn)} drawn{stands}"
    if len(report.strata) > _MOST_STRATA:
        yield f"- and {len(report.strata) - _MOST_STRATA} smaller strata"


def _drawn(number: int, one: Drawn) -> Iterator[str]:
    yield f"## {number}. {code(one.failure.category)} at {code(one.failure.tool)}"
    yield ""
    yield f"- trajectory {code(one.failure.trajectory_id)}"
    for word, value in (("case", one.case_id), ("agent", one.agent), ("error", one.failure.error)):
        if value is not None and value != "-":
            yield f"- {word} {code(value)}"
    verdict = "failed" if one.failure.judged else "could not be judged"
    yield f"- {verdict}" + (f": {code(one.reason)}" if one.reason else "")
    if one.weight is not None:
        yield f"- stands for {one.weight:g} failures"
    yield ""
    if one.cause is not None:
        sure = "" if one.confidence is None else f" (confidence {one.confidence:.2f})"
        yield f"**Root cause**{sure}, span {code(one.cause.span_id)}: {escaped(one.cause.sentence)}"
    else:
        yield "**Root cause** unknown: nothing says enough to name one span."
    if one.others_call_it:
        named = "; ".join(f"{name}: {word}" for name, word in one.others_call_it.items())
        yield ""
        yield f"Elsewhere called: {escaped(named)}"
    yield from _evidence(one)
    yield ""
    yield "Timeline:"
    yield ""
    for event in one.timeline:
        yield from _event(event)
    if one.calls_left_out:
        yield f"- and {one.calls_left_out} calls in between"


def _evidence(one: Drawn) -> Iterator[str]:
    others = [e for e in one.evidence if e is not one.cause]
    if not others:
        return
    yield ""
    yield "Evidence:"
    yield ""
    for evidence in others:
        yield from _one(evidence)
    if one.evidence_left_out:
        yield f"- and {one.evidence_left_out} more"


def _one(evidence: Evidence) -> Iterator[str]:
    notes = [evidence.severity]
    if evidence.repaired:
        notes.append("put right later")
    if evidence.caused_by:
        notes.append(f"a consequence of span {code(evidence.caused_by)}")
    yield (
        f"- {code(evidence.category)} ({', '.join(notes)}), span {code(evidence.span_id)}: "
        f"{escaped(evidence.sentence)}"
    )
    for word, value in (("expected", evidence.expected), ("actual", evidence.actual)):
        if value is not None:
            yield f"  - {word} {code(value, _MOST_VALUE_CHARS)}"


def _event(event: Event) -> Iterator[str]:
    lasted = "unfinished" if event.lasted_s is None else f"{event.lasted_s:.3f} s"
    at = f"{event.at_s:+.3f} s"
    turn = "" if event.turn is None else f", turn {event.turn}"
    if event.kind == "turn":
        tokens = "" if event.tokens is None else f", {event.tokens} tokens"
        yield f"- {at} model{turn}, {lasted}{tokens}, span {code(event.span_id)}"
        return
    notes = [code(event.outcome)]
    if event.error:
        notes.append(code(event.error))
    if event.attempt is not None and event.attempt > 1:
        notes.append(f"attempt {event.attempt}")
    if event.repeat:
        notes.append(str(event.repeat).replace("_", " "))
    yield (
        f"- {at} {code(event.tool)}: {', '.join(notes)}, {lasted}{turn}, span {code(event.span_id)}"
    )
    for word, value in (("arguments", event.arguments), ("result", event.result)):
        if value is not None:
            yield f"  - {word} {code(value, _MOST_VALUE_CHARS)}"
