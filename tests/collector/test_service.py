"""The daemon as a whole, where a process of its own is not needed."""

import asyncio
import errno
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolverdict.collector import flush
from toolverdict.collector.errors import ConfigError, StorageError
from toolverdict.collector.lake import Lake
from toolverdict.collector.segment import pack_header
from toolverdict.collector.testing import make_request, make_span, post

Serve = Callable[..., AbstractAsyncContextManager[Any]]
VALID = make_request(make_span(1)).SerializeToString()


async def test_a_disk_that_takes_no_parquet_is_told_at_the_end(
    serve: Serve, stored: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log keeps what was acknowledged, and the next start stores it."""

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(flush, "flush_segment", full)
        with pytest.raises(StorageError, match="1 segments could not be written"):
            async with serve() as collector:
                await asyncio.to_thread(post, f"{collector.http}/v1/traces", VALID)
    assert stored() == 0
    async with serve():
        pass
    assert stored() == 1


async def test_a_folder_that_cannot_take_the_lake(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Lake, "create", read_only)
    with pytest.raises(ConfigError, match=r"cannot write to .*Read-only file system"):
        async with serve():
            pass


async def test_a_segment_that_never_got_its_name_is_removed(serve: Serve, tmp_path: Path) -> None:
    """A crash while a segment is made leaves nothing that was acknowledged."""
    wal = tmp_path / "wal"
    wal.mkdir()
    (wal / "18ecd890a676a21d-4070ba29.new").write_bytes(pack_header(1)[:5])
    async with serve():
        pass
    assert {path.name for path in wal.iterdir()} == {"LOCK", "METRICS"}


async def test_unfinished_parts_are_removed_at_the_start(serve: Serve, tmp_path: Path) -> None:
    leftover = tmp_path / "spans" / "date=2026-11-30" / ".part-1-2-0.parquet.tmp"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    async with serve():
        pass
    assert not leftover.exists()


async def test_segments_are_flushed_while_serving(serve: Serve, tmp_path: Path) -> None:
    """Readers need not wait for the collector to stop."""
    async with serve(flush_interval_s=0.05) as collector:
        await asyncio.to_thread(post, f"{collector.http}/v1/traces", VALID)
        for _ in range(200):
            if Lake.open(tmp_path).read_spans(0, ["name"]).num_rows:
                break
            await asyncio.sleep(0.02)
        assert Lake.open(tmp_path).read_spans(0, ["name"]).num_rows == 1


async def test_without_fdatasync_fsync_serves(
    serve: Serve, stored: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fdatasync")
    async with serve() as collector:
        answer = await asyncio.to_thread(post, f"{collector.http}/v1/traces", VALID)
        assert answer.status == 200
    assert stored() == 1


async def test_what_is_no_file_in_the_log_is_set_aside(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "wal" / "18ecd890a676a21d-4070ba29.log").mkdir(parents=True)
    (tmp_path / "wal" / "18ecd890a676a21d-4070ba30.log").symlink_to("/nonexistent")
    with pytest.raises(StorageError, match=r"2 segments were damaged and are in .*quarantine"):
        async with serve():
            pass
    assert len(list((tmp_path / "wal" / "quarantine").iterdir())) == 2


async def test_a_segment_taken_away_while_serving_is_told_at_the_end(
    serve: Serve, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="1 segments were taken out of"):  # noqa: PT012
        async with serve() as collector:
            await asyncio.to_thread(post, f"{collector.http}/v1/traces", VALID)
            (segment,) = (tmp_path / "wal").glob("*.log")
            segment.rename(tmp_path / segment.name)


async def test_a_deleted_data_folder_acknowledges_nothing(serve: Serve, tmp_path: Path) -> None:
    """Not even when another folder of the same name takes its place."""
    with pytest.raises(StorageError, match="taken out of"):  # noqa: PT012
        async with serve() as collector:
            url = f"{collector.http}/v1/traces"
            assert (await asyncio.to_thread(post, url, VALID)).status == 200
            shutil.rmtree(tmp_path)
            assert (await asyncio.to_thread(post, url, VALID)).status == 503
            (tmp_path / "wal").mkdir(parents=True)
            assert (await asyncio.to_thread(post, url, VALID)).status == 503
            with pytest.raises(urllib.error.HTTPError, match="503"):
                await asyncio.to_thread(urllib.request.urlopen, f"{collector.http}/readyz")


async def test_a_deleted_lock_lets_no_second_collector_in(serve: Serve, tmp_path: Path) -> None:
    async with serve():
        (tmp_path / "wal" / "LOCK").unlink()
        with pytest.raises(ConfigError, match="another collector"):
            async with serve():
                pass
