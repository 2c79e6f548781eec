"""A collector inside the test process, for tests that look into it or break it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from toolverdict.collector.decoders import VARIABLE, decoder
from toolverdict.collector.errors import ConfigError
from toolverdict.collector.lake import Lake
from toolverdict.collector.service import collecting
from toolverdict.collector.settings import CollectorSettings


class InProcess(NamedTuple):
    """A collector that serves in this event loop."""

    grpc: str
    http: str
    data_dir: Path

    def wal_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.data_dir / "wal").glob("*.log"))


Serve = Callable[..., AbstractAsyncContextManager[InProcess]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Start a collector on free ports: ``async with serve(max_body_bytes=100) as collector``."""

    @asynccontextmanager
    async def start(**settings: float) -> AsyncIterator[InProcess]:
        values = {"flush_interval_s": 3600.0, "grpc_port": 0, "http_port": 0, **settings}
        chosen = CollectorSettings.model_validate({"data_dir": tmp_path, **values})
        async with collecting(chosen) as addresses:
            yield InProcess(addresses.grpc, addresses.http, tmp_path)

    return start


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[], int]:
    """How many spans the lake of the collector holds."""

    def count() -> int:
        lake = Lake.open(tmp_path)
        return sum(lake.read_spans(bucket).num_rows for bucket in range(lake.buckets))

    return count


@pytest.fixture(params=["python", "native"], scope="module")
def each_decoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module with one decoder and then with the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        try:
            decoder()
        except ConfigError as error:
            pytest.skip(str(error))
        yield
