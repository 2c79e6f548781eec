"""The command ``collect``: parse, call one function, say what went wrong in one line."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.collector.settings import MIB, CollectorSettings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def collect(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Folder of the lake; made when missing.")
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
    from toolverdict.collector import service
    from toolverdict.collector.errors import CollectorError

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
        if as_json:
            event = {"event": "listening", **addresses._asdict(), "data": str(data)}
            typer.echo(json.dumps(event))
        else:
            typer.echo(f"OTLP/gRPC {addresses.grpc}, OTLP/HTTP {addresses.http}, data in {data}")

    try:
        asyncio.run(service.run(settings, announce))
    except CollectorError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
