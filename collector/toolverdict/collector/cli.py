"""The command ``collect``: parse, call one function, say what went wrong in one line."""

import asyncio
import json
import logging
import os
import signal as unix_signal
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.collector.settings import MIB, CollectorSettings

_LOG = logging.getLogger(__name__)


def _folder(text: str) -> Path:
    if not text:
        raise typer.BadParameter("must not be empty; give a folder, . for this one")
    return Path(text)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def collect(
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", help="Folder of the lake; made when missing.", parser=_folder
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    grpc_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for OTLP/gRPC; 0 takes a free one.")
    ] = 4317,
    http_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for OTLP/HTTP; 0 takes a free one.")
    ] = 4318,
    flush_interval: Annotated[
        float, typer.Option(min=0.01, max=3600, help="Seconds until spans become Parquet.")
    ] = 5.0,
    max_body_mib: Annotated[
        int, typer.Option(min=1, max=1024, help="Largest request, inflated, in MiB.")
    ] = 16,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as one JSON object.")
    ] = False,
) -> None:
    """Receive OTLP traces and logs over gRPC and HTTP and store them as Parquet.

    What is acknowledged is on the disk. SIGTERM or Ctrl-C stores everything and stops.
    """
    # gRPC writes its own lines about a port in use; ours is the one that helps.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Only now, as they bring gRPC, Arrow and a web server: --help stays quick.
    from toolverdict.collector import library_logs, service
    from toolverdict.collector.errors import CollectorError

    library_logs.quieten()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    settings = CollectorSettings(
        data_dir=data,
        host=host,
        grpc_port=grpc_port,
        http_port=http_port,
        flush_interval_s=flush_interval,
        max_body_bytes=max_body_mib * MIB,
        max_inflight_bytes=max(128, 4 * max_body_mib) * MIB,
    )

    def announce(addresses: service.Addresses) -> None:
        line = f"OTLP/gRPC {addresses.grpc}, OTLP/HTTP {addresses.http}, data in {data}"
        if as_json:
            line = json.dumps({"event": "listening", **addresses._asdict(), "data": str(data)})
        _announce(line)

    try:
        asyncio.run(service.run(settings, announce))
    except CollectorError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    finally:
        # A second SIGTERM while Python shuts down must not undo a good end.
        for number in service.STOP_SIGNALS:
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
