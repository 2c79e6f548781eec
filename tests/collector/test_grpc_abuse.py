"""What a hostile HTTP/2 client can do to the gRPC port, with raw frames (RFC 9113)."""

import socket
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.testing import (
    CollectorProcess,
    make_request,
    make_span,
    running_collector,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_HEADERS = 4
MIB = 1024 * 1024
METHOD = f"/{WIRE[Signal.TRACES].grpc_service}/Export"


def _frame(kind: int, payload: bytes, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _head() -> bytes:
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    # Literal fields without indexing (RFC 7541, 6.2.2).
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in pairs.items()
    )


def _resets() -> bytes:
    """CVE-2023-44487: each stream is opened and given up at once."""
    return b"".join(
        _frame(HEADERS, _head(), END_HEADERS, stream)
        + _frame(RST_STREAM, (8).to_bytes(4), 0, stream)
        for stream in range(1, 20_001, 2)
    )


def _streams() -> bytes:
    """Far more streams than may be open, each with a message that never ends."""
    return b"".join(
        _frame(HEADERS, _head(), END_HEADERS, stream)
        + _frame(DATA, b"\0" + (8 * MIB).to_bytes(4) + bytes(1000), 0, stream)
        for stream in range(1, 20_001, 2)
    )


def _continuations() -> bytes:
    """CVE-2024-27316: a head that never ends."""
    return _frame(HEADERS, _head(), 0, 1) + _frame(CONTINUATION, bytes(16384), 0, 1) * 3000


@pytest.mark.parametrize("attack", [_resets, _streams, _continuations])
def test_memory_stays_bounded_and_others_are_served(attack: object, tmp_path: Path) -> None:
    assert callable(attack)
    payload = PREFACE + _frame(SETTINGS, b"") + attack()
    with running_collector(tmp_path / "lake") as collector:
        _export(collector, 0)
        before = _peak_bytes(collector)
        for _ in range(4):
            _send(collector.grpc, payload)
        _export(collector, 1)
        assert _peak_bytes(collector) - before < 96 * MIB
        assert collector.terminate() == 0


def test_a_message_that_inflates_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    """A bomb: a few kB of gzip become 1 GiB; gRPC stops at the limit."""
    with running_collector(tmp_path / "lake", max_body_mib=1) as collector:
        _export(collector, 0)
        before = _peak_bytes(collector)
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(
            collector.grpc, options, compression=grpc.Compression.Gzip
        ) as channel:
            export = channel.unary_unary(METHOD, None, None)
            for _ in range(3):
                with pytest.raises(grpc.RpcError) as caught:
                    export(bytes(256 * MIB))
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert _peak_bytes(collector) - before < 64 * MIB
        _export(collector, 1)


def _export(collector: CollectorProcess, number: int) -> None:
    with grpc.insecure_channel(collector.grpc) as channel:
        export = channel.unary_unary(METHOD, None, None)
        export(make_request(make_span(number)).SerializeToString(), timeout=30)


def _send(address: str, payload: bytes) -> None:
    """Send as much as the server takes; it may well hang up."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=2.0) as connection:
        with suppress(OSError):
            connection.sendall(payload)
        with suppress(OSError):
            connection.recv(65536)


def _peak_bytes(collector: CollectorProcess) -> int:
    status = Path(f"/proc/{collector.process.pid}/status")
    if not status.exists():
        pytest.skip("needs /proc")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
