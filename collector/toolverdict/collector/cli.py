"""The command ``collect``: parse, call one function, say what went wrong in one line."""

import asyncio
import json
import logging
import os
import signal as unix_signal
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from toolverdict.collector.allocator import keep_freed_memory
from toolverdict.collector.lake_cli import duration_of, size_of
from toolverdict.collector.limits import MIB, Limits
from toolverdict.collector.settings import CollectorSettings, Fsync

if TYPE_CHECKING:
    from toolverdict.collector.service import Addresses

_LOG = logging.getLogger(__name__)


def _folder(text: str) -> Path:
    if not text:
        raise typer.BadParameter("must not be empty; give a folder, . for this one")
    return Path(text)


def _print_versions(wanted: bool) -> None:
    if wanted:
        from toolverdict.collector.versions import versions

        for name, value in versions().items():
            typer.echo(f"{name} {value}")
        raise typer.Exit


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_NETWORK = "Network"
_SECURITY = "Security"
_LIMITS = "Limits"
_UPKEEP = "Upkeep"

_DEFAULTS = Limits()


@app.command()
def collect(
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", help="Folder of the lake; made when missing.", parser=_folder
        ),
    ],
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where the lake is instead: s3://, gs:// or az://; DIR has the log."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on.", rich_help_panel=_NETWORK)
    ] = "127.0.0.1",
    grpc_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Port for OTLP/gRPC; 0 takes a free one.",
            rich_help_panel=_NETWORK,
        ),
    ] = 4317,
    http_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Port for OTLP/HTTP, health and metrics; 0 takes a free one.",
            rich_help_panel=_NETWORK,
        ),
    ] = 4318,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Processes that share the ports, each with a log of its own.",
            rich_help_panel=_NETWORK,
        ),
    ] = 1,
    flush_interval: Annotated[
        float, typer.Option(min=0.01, max=3600, help="Seconds until spans become Parquet.")
    ] = 5.0,
    fsync: Annotated[
        Fsync,
        typer.Option(
            help="When the log is brought to the disk: before the answer, within "
            "--fsync-interval, or when the system likes."
        ),
    ] = Fsync.ALWAYS,
    fsync_interval: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=60,
            help="Seconds of acknowledged data that a loss of power may cost with "
            "--fsync interval.",
        ),
    ] = 1.0,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="Certificate with its chain; renewed while running.",
            rich_help_panel=_SECURITY,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="Key of the certificate.", rich_help_panel=_SECURITY),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="Clients must have a certificate that this CA signed.",
            rich_help_panel=_SECURITY,
        ),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Bearer tokens that may send, TOKEN or TENANT TOKEN a line; read again when "
            "it changes.",
            rich_help_panel=_SECURITY,
        ),
    ] = None,
    redact: Annotated[
        Path | None,
        typer.Option(
            metavar="YAML",
            help="Rules of what is dropped, hashed or masked before it is stored.",
            rich_help_panel=_SECURITY,
        ),
    ] = None,
    compact_every: Annotated[
        timedelta | None,
        typer.Option(
            metavar="TIME",
            help="Compact the lake so often, such as 1h, beside the collecting.",
            rich_help_panel=_UPKEEP,
            parser=duration_of,
        ),
    ] = None,
    retain_age: Annotated[
        timedelta | None,
        typer.Option(
            metavar="TIME",
            help="Then delete hours that ended longer ago, such as 30d.",
            rich_help_panel=_UPKEEP,
            parser=duration_of,
        ),
    ] = None,
    retain_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            help="Then delete the oldest hours of each lake above so much, such as 100GB.",
            rich_help_panel=_UPKEEP,
            parser=size_of,
        ),
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="YAML",
            help="Sampling policy: which quiet traces stay when the lake is compacted.",
            rich_help_panel=_UPKEEP,
        ),
    ] = None,
    max_body_mib: Annotated[
        int,
        typer.Option(
            min=1,
            max=1024,
            help="Largest request, inflated, in MiB, over HTTP and gRPC.",
            rich_help_panel=_LIMITS,
        ),
    ] = 16,
    max_inflight_mib: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Requests in memory in each process, in MiB; 8 of the largest, 128 at least, "
            "when not given.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_wal_mib: Annotated[
        int,
        typer.Option(
            min=64,
            help="Log that may wait for Parquet, in MiB, before requests are refused.",
            rich_help_panel=_LIMITS,
        ),
    ] = 4096,
    max_attributes: Annotated[
        int,
        typer.Option(
            min=1,
            help="Attributes of one span, event, link, log record, resource or scope.",
            rich_help_panel=_LIMITS,
        ),
    ] = _DEFAULTS.attributes,
    max_events: Annotated[
        int, typer.Option(min=1, help="Events of one span.", rich_help_panel=_LIMITS)
    ] = _DEFAULTS.events,
    max_links: Annotated[
        int, typer.Option(min=1, help="Links of one span.", rich_help_panel=_LIMITS)
    ] = _DEFAULTS.links,
    max_value_mib: Annotated[
        int,
        typer.Option(
            min=1, help="One text or bytes value of a record, in MiB.", rich_help_panel=_LIMITS
        ),
    ] = _DEFAULTS.value_bytes // MIB,
    max_record_mib: Annotated[
        int,
        typer.Option(
            min=1,
            max=1024,
            help="Weight of one span or log record, in MiB: the most it can take as columns.",
            rich_help_panel=_LIMITS,
        ),
    ] = _DEFAULTS.record_bytes // MIB,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as one JSON object.")
    ] = False,
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print versions, and which decoder is in use.",
            is_eager=True,
            callback=_print_versions,
        ),
    ] = False,
) -> None:
    """Receive OTLP traces and logs over gRPC and HTTP and store them as Parquet.

    What is acknowledged is on the disk. SIGTERM or Ctrl-C stores everything and stops.
    """
    _prepare_process()
    if max_inflight_mib is not None and max_inflight_mib < max_body_mib:
        # Requests that tell no length need room for the largest.
        typer.echo(
            f"error: --max-inflight-mib {max_inflight_mib} is below --max-body-mib {max_body_mib}; "
            "the largest request must fit among those in flight",
            err=True,
        )
        raise typer.Exit(2)
    # Only now, as they bring gRPC, Arrow and a web server: --help stays quick.
    from toolverdict.collector import service
    from toolverdict.collector.errors import CollectorError, printable
    from toolverdict.collector.workers import run_workers

    try:
        settings = CollectorSettings(
            data_dir=data,
            lake_url=lake,
            host=host,
            grpc_port=grpc_port,
            http_port=http_port,
            workers=workers,
            flush_interval_s=flush_interval,
            fsync=fsync,
            fsync_interval_s=fsync_interval,
            tls_certificate=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            tokens_file=tokens,
            redaction_file=redact,
            compact_every_s=_seconds(compact_every),
            retain_age_s=_seconds(retain_age),
            retain_bytes=retain_bytes,
            sampling_file=sample,
            max_body_bytes=max_body_mib * MIB,
            max_inflight_bytes=(max_inflight_mib or max(128, 8 * max_body_mib)) * MIB,
            max_wal_bytes=max_wal_mib * MIB,
            max_attributes=max_attributes,
            max_events=max_events,
            max_links=max_links,
            max_value_bytes=max_value_mib * MIB,
            max_record_bytes=max_record_mib * MIB,
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{name}: " for name in first["loc"])
        reason = place + first["msg"].removeprefix("Value error, ")
        typer.echo(f"error: {printable(reason)}", err=True)
        raise typer.Exit(2) from None

    def announce(addresses: service.Addresses) -> None:
        line = f"OTLP/gRPC {addresses.grpc}, OTLP/HTTP {addresses.http}, data in {lake or data}"
        if as_json:
            line = json.dumps({"event": "listening", **addresses._asdict(), "data": str(data)})
        _announce(printable(line))

    try:
        if workers == 1:
            asyncio.run(service.run(settings, announce))
        else:
            run_workers(settings, announce, work)
    except CollectorError as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        raise typer.Exit(error.exit_code) from None
    finally:
        _ignore_signals()


def work(settings: CollectorSettings, worker: int, pipe: Connection) -> None:
    """What a worker process runs; it tells its supervisor where it listens and how it ended."""
    _prepare_process()
    from toolverdict.collector import service
    from toolverdict.collector.errors import CollectorError

    def announce(addresses: "Addresses") -> None:
        pipe.send(addresses)

    try:
        asyncio.run(service.run(settings, announce, worker, pipe.fileno()))
    except CollectorError as error:
        _ignore_signals()
        pipe.send(error)
        raise SystemExit(error.exit_code) from None
    finally:
        _ignore_signals()


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


class _OneLine(logging.Formatter):
    """Names of files in a message must not steer the terminal that shows it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        from toolverdict.collector.errors import printable

        record.message = printable(record.message)
        return super().formatMessage(record)


def _prepare_process() -> None:
    keep_freed_memory()
    # gRPC writes its own lines about a port in use; ours is the one that helps.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from toolverdict.collector import library_logs

    library_logs.quieten()
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _ignore_signals() -> None:
    """A second SIGTERM while Python shuts down must not undo a good end."""
    for number in (unix_signal.SIGTERM, unix_signal.SIGINT):
        unix_signal.signal(number, unix_signal.SIG_IGN)


def _announce(line: str) -> None:
    """Print the ready line; where nobody can read it, it goes to the log, and we collect on."""
    try:
        # A folder's name need not be UTF-8.
        typer.echo(line.encode(errors="backslashreplace").decode())
    except OSError as error:
        _LOG.warning("cannot print to stdout (%s): %s", error.strerror, line)
        # What is left in the buffer would fail once more at the exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
