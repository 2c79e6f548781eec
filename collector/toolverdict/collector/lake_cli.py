"""``toolverdict lake``: look into a lake, check it, make it smaller, take spans out of it."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from toolverdict.collector.lake import Lake

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Look into a lake, check it, compact it, export from it, delete what is old.",
)

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST: Final = timedelta(days=36_500)
_YEARS: Final = range(1678, 2262)
"""Those of which every time is an int64 of nanoseconds."""
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


def duration_of(text: str) -> timedelta:
    """A duration as an operator writes it.

    Raises:
        typer.BadParameter: when it is none, or longer than a hundred years.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter("give a number and s, m, h, d or w, such as 30d")
    try:
        duration = timedelta(**{_UNITS[match[2]]: float(match[1])})
    except OverflowError:
        duration = timedelta.max
    if duration > _LONGEST:
        raise typer.BadParameter("that is longer than any lake has been there")
    return duration


def size_of(text: str) -> int:
    """Bytes as an operator writes them.

    Raises:
        typer.BadParameter: when it is no number of bytes, or more than any disk holds.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter("give bytes, such as 500MB, 100GB or 64GiB")
    base = 1024 if match[3] else 1000
    try:
        return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))
    except OverflowError:
        raise typer.BadParameter("that is more than any disk holds") from None


def time_of(text: str) -> datetime:
    """A time in ISO 8601, UTC unless it says otherwise; or so long ago, such as 24h."""
    if _DURATION.fullmatch(text.strip()):
        return datetime.now(UTC) - duration_of(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            "give a time such as 2026-11-30T14:00Z, or how long ago, such as 24h"
        ) from None
    if time.year not in _YEARS:
        raise typer.BadParameter(f"give a year from {_YEARS[0]} to {_YEARS[-1]}")
    return time if time.tzinfo else time.replace(tzinfo=UTC)


_Dir = Annotated[
    str, typer.Argument(metavar="DIR", help="The lake: a folder, or s3://, gs://, az://.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("info")
def info_command(location: _Dir, as_json: _Json = False) -> None:
    """Say what a lake holds. Reads footers only.

    Exits 2 when it is no lake, or a part cannot be read.
    """
    with _one_line_errors():
        from toolverdict.collector.lake.inventory import take_inventory
        from toolverdict.collector.lake.layout import FOLDERS

        lake = _open(location)
        document: dict[str, Any] = {"version": 1, "location": location, "buckets": lake.buckets}
        for signal, found in take_inventory(lake).items():
            document[FOLDERS[signal]] = {
                **asdict(found),
                "first": found.first.isoformat() if found.first else None,
                "last": found.last.isoformat() if found.last else None,
                "schema_versions": {str(key): n for key, n in found.schema_versions.items()},
            }
    if as_json:
        _print_json(document)
        return
    _say(f"{location}: {_count(lake.buckets, 'bucket')}")
    for name in FOLDERS.values():
        found_of = document[name]
        versions = ", ".join(found_of["schema_versions"]) or "none"
        _say(
            f"{name}: {_count(found_of['rows'], 'row')} in {_count(found_of['parts'], 'part')} "
            f"({found_of['compacted_parts']} compacted), {_bytes(found_of['bytes'])}, "
            f"{_count(found_of['hours'], 'hour')}, schema {versions}"
        )
        if found_of["first"]:
            _say(f"  from {found_of['first']} to {found_of['last']}")


@app.command("verify")
def verify_command(location: _Dir, as_json: _Json = False) -> None:
    """Read every part and check it: checksums, order, buckets, row groups, what is left over.

    Exits 0 when all is well, 1 with one line for each fault, 2 when it is no lake.
    """
    with _one_line_errors():
        from toolverdict.collector.lake.verification import verify

        lake = _open(location)
        with _progress("verifying") as progress:
            found = verify(lake, progress)
    if as_json:
        _print_json({"version": 1, **asdict(found)})
    else:
        for fault in found.faults:
            _say(fault)
        _say(
            f"{location}: {_count(len(found.faults), 'fault')} in {_count(found.parts, 'part')}, "
            f"{_count(found.rows, 'row')}; {_count(found.duplicates, 'duplicate')} that readers "
            "pass over"
        )
    raise typer.Exit(1 if found.faults else 0)


@app.command("compact")
def compact_command(
    location: _Dir,
    grace: Annotated[
        timedelta,
        typer.Option(help="How long after its end an hour is compacted.", parser=duration_of),
    ] = "30m",  # type: ignore[assignment]
    sample: Annotated[
        Path | None,
        typer.Option(metavar="YAML", help="Sampling policy: which quiet traces stay."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Make one sorted part of the parts of each closed hour, without retries.

    With --sample, traces that have gone quiet are kept or dropped for good before. Collectors may
    write and readers may read meanwhile. Exits 0, 1 when a part had to be left as it is, 2 when it
    is no lake or no policy, or somebody else is at it.
    """
    with _one_line_errors():
        from toolverdict.collector.lake.compaction import CompactionSettings, compact
        from toolverdict.collector.sampling.policy import SamplingPolicy
        from toolverdict.collector.sampling.sampler import decided

        lake, now = _open(location), datetime.now(UTC)
        policy = SamplingPolicy.load(sample) if sample is not None else None
        with lake.store.upkeep(), _progress("compacting") as progress:
            sampler = decided(policy, lake, now - grace) if policy is not None else None
            done = compact(lake, CompactionSettings(grace, sampler), now, progress)
    counts = sampler.counts if sampler is not None else None
    if as_json:
        sampled = {} if counts is None else {"sampling": asdict(counts)}
        _print_json({"version": 1, **asdict(done), **sampled})
    else:
        for fault in done.faults:
            _say(fault, err=True)
        _say(
            f"{location}: {_count(done.parts_before, 'part')} to {done.parts_after}, "
            f"{_bytes(done.bytes_before)} to {_bytes(done.bytes_after)}, "
            f"{_count(done.rows_after, 'row')}, {_count(done.retries, 'retry', 'retries')} dropped"
        )
        if counts is not None:
            _say(
                f"sampling: {_count(counts.traces_kept, 'trace')} kept, {counts.traces_dropped} "
                f"dropped, {counts.traces_waiting} not quiet yet; "
                f"{_count(counts.spans_dropped, 'span')} dropped "
                f"({counts.late_spans_dropped} came late) and "
                f"{_count(counts.log_records_dropped, 'log record')}"
            )
    raise typer.Exit(1 if done.faults else 0)


@app.command("retain")
def retain_command(
    location: _Dir,
    max_age: Annotated[
        timedelta | None,
        typer.Option(help="Delete hours that ended longer ago, such as 30d.", parser=duration_of),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(help="Delete the oldest hours above so much, such as 100GB.", parser=size_of),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: _Json = False,
) -> None:
    """Delete whole hours, the oldest first.

    Exits 0, 1 when an hour stays because of what somebody put there, 2 when it is no lake or
    somebody is at it.
    """
    if max_age is None and max_bytes is None:
        raise typer.BadParameter("say what to keep: --max-age, --max-bytes or both")
    with _one_line_errors(), ExitStack() as held:
        from toolverdict.collector.lake.retention import retain

        lake = _open(location)
        if not dry_run:
            held.enter_context(lake.store.upkeep())
        done = retain(lake, max_age=max_age, max_bytes=max_bytes, dry_run=dry_run)
    hours = [f"{hour:%Y-%m-%dT%HZ}" for hour in done.hours]
    if as_json:
        _print_json({"version": 1, **asdict(done), "hours": hours, "dry_run": dry_run})
    else:
        for fault in done.faults:
            _say(fault, err=True)
        for hour in hours:
            _say(f"{'would delete' if dry_run else 'deleted'} {hour}")
        _say(f"{location}: {_bytes(done.bytes_before)} to {_bytes(done.bytes_after)}")
    raise typer.Exit(1 if done.faults else 0)


@app.command("export")
def export_command(
    location: _Dir,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="File to write: .jsonl for OTLP/JSON lines, else protobuf."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="OTLP/HTTP endpoint, http://HOST:PORT.")
    ] = None,
    signal: Annotated[
        str | None, typer.Option("--signal", help="spans or logs; both unless said.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="Begun then or later: 2026-11-30T14:00Z, or 24h ago.", parser=time_of),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Begun before that time.", parser=time_of)
    ] = None,
    trace: Annotated[str | None, typer.Option("--trace", help="Only this trace id.")] = None,
    as_json: _Json = False,
) -> None:
    """Send spans and log records out as OTLP again, each once.

    Exits 0, 1 when the endpoint did not take all of it, 2 when it is no lake.
    """
    if (file is None) == (endpoint is None):
        raise typer.BadParameter("say where to: --file or --endpoint")
    with _one_line_errors():
        from toolverdict.collector.lake.export import Selection, export
        from toolverdict.collector.lake.export_targets import (
            JSON_SUFFIXES,
            HttpTarget,
            file_target,
        )
        from toolverdict.collector.lake.layout import FOLDERS

        signals = {name: signal for signal, name in FOLDERS.items()}
        if signal is not None and signal not in signals:
            raise typer.BadParameter(f"give one of {', '.join(signals)}", param_hint="--signal")
        chosen = (signals[signal],) if signal is not None else tuple(FOLDERS)
        if file is not None and file.suffix not in JSON_SUFFIXES and len(chosen) > 1:
            raise typer.BadParameter("a protobuf file holds one signal; give --signal")
        lake = _open(location)
        selection = Selection(chosen, since, until, trace)
        rejected = 0
        with _progress("exporting") as progress:
            if file is not None:
                with file_target(file) as send:
                    sent = export(lake, selection, send, progress)
            elif endpoint is not None:
                target = HttpTarget(endpoint, tell=partial(_say, err=True))
                sent = export(lake, selection, target.send, progress)
                rejected = target.rejected.total()
    counts = {FOLDERS[each]: sent[each] for each in chosen}
    if as_json:
        _print_json({"version": 1, **counts, "rejected": rejected})
    else:
        told = " and ".join(f"{count} {name}" for name, count in counts.items())
        _say(f"{file or endpoint}: {told}" + (f", {rejected} rejected" if rejected else ""))
    raise typer.Exit(1 if rejected else 0)


def _open(location: str) -> "Lake":
    from toolverdict.collector.lake import Lake

    return Lake.open(location)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    from toolverdict.collector.errors import CollectorError

    try:
        yield
    except CollectorError as error:
        _say(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except OSError as error:
        what = error.strerror or str(error)
        where = f" at {error.filename}" if error.filename else ""
        _say(f"error: {what}{where}; make it possible and run this again", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with typer.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def tell(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield tell


def _say(line: str, err: bool = False) -> None:
    """Print one line; names of files are anybody's, and must not steer a terminal."""
    typer.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line), err=err)


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, indent=2))


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _bytes(number: int) -> str:
    """Bytes as people write them, with three digits that count."""
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
