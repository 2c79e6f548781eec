"""One file, many users: an interruption, a thief or a stranger takes it away from nobody else."""

import asyncio
import gc
import os
import signal
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from toolverdict.instrument import guard
from toolverdict.instrument.errors import StoreError
from toolverdict.instrument.stores import postponing, sqlite_file
from toolverdict.instrument.stores.sqlite_file import (
    Busy,
    SqliteFile,
    at_the_end,
    without_blocking,
)

SCHEMA = (("CREATE TABLE thing (id INTEGER PRIMARY KEY, text TEXT) STRICT",),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def file(path: Path) -> Iterator[SqliteFile]:
    opened = SqliteFile(path, "thing", SCHEMA)
    yield opened
    opened.close()


def put(file: SqliteFile, text: str = "x") -> None:
    with file.writing() as connection:
        connection.execute("INSERT INTO thing (text) VALUES (?)", (text,))


def held(file: SqliteFile) -> list[str]:
    with file.reading() as connection:
        return [row["text"] for row in connection.execute("SELECT text FROM thing ORDER BY id")]


def can_be_written(path: Path) -> bool:
    other = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        other.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    finally:
        other.close()
    return True


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_a_signal_while_it_waits_leaves_nothing_open(
    file: SqliteFile, path: Path, error: type[BaseException]
) -> None:
    def raising(number: int, frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, raising)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        other.execute("ROLLBACK")

    timer = threading.Timer(0.05, interrupt)
    timer.start()
    try:
        with pytest.raises(error):
            put(file)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
        other.close()
    assert can_be_written(path)
    put(file, "later")
    assert held(file) == ["later"]


def test_a_signal_takes_the_file_from_nobody_wherever_it_comes(
    file: SqliteFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {sqlite_file.__file__, postponing.__file__}
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.2)

    def interrupted(at: int) -> bool:
        """Interrupt where CPython looks for signals: a function begins, or one of C's is back."""
        seen = 0

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal seen
            if frame.f_code.co_filename in ours and event in ("call", "c_return", "c_exception"):
                seen += 1
                if seen == at:
                    raise KeyboardInterrupt

        sys.setprofile(profile)
        try:
            put(file)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    def others_may_use_it() -> bool:
        with ThreadPoolExecutor() as pool:
            in_another_thread = pool.submit(lambda: held(file))
        return in_another_thread.exception() is None and can_be_written(path)

    at = 1
    while interrupted(at):
        assert not postponing.is_busy(), at
        assert others_may_use_it(), at
        at += 1
    assert at > 10
    put(file, "last")
    assert held(file)[-1] == "last"


def test_an_interruption_at_any_line_ends_with_the_next_use(
    file: SqliteFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal comes there; but whoever raises at a line (a debugger, a timeout) may."""
    ours = {sqlite_file.__file__, postponing.__file__}
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.2)
    errors: list[BaseException] = []  # and their frames stay, as those of a logged error may

    def interrupted(at: int) -> bool:
        seen = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal seen
            if frame.f_code.co_filename in ours and event != "return":
                seen += 1
                if seen == at:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            put(file)
        except KeyboardInterrupt as error:
            errors.append(error)
            return True
        finally:
            sys.settrace(None)
        return False

    at = 1
    while interrupted(at):
        put(file, f"after {at}")
        assert can_be_written(path), at
        with ThreadPoolExecutor() as pool:
            assert pool.submit(lambda: held(file)).result()[-1] == f"after {at}"
        at += 1
    assert at > 50
    count = len(held(file))
    errors.clear()
    with file.writing() as connection:
        gc.collect()
        connection.execute("INSERT INTO thing (text) VALUES ('last')")
    assert len(held(file)) == count + 1


def test_what_was_left_open_is_rolled_back_first(file: SqliteFile) -> None:
    file._mine.connection.execute("BEGIN IMMEDIATE")
    file._mine.connection.execute("INSERT INTO thing (text) VALUES ('half')")
    put(file, "whole")
    assert held(file) == ["whole"]


def test_an_error_of_the_caller_is_not_the_files(file: SqliteFile) -> None:
    for use in (file.writing, file.reading):
        with pytest.raises(TimeoutError), use():
            raise TimeoutError
    with pytest.raises(StoreError), file.writing() as connection:
        connection.execute("no sql")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_taken_away_takes_nothing_more(
    file: SqliteFile, path: Path, *, replaced: bool
) -> None:
    put(file)
    aside = path.with_name("aside")
    path.rename(aside)
    if replaced:
        SqliteFile(path, "thing", SCHEMA).close()
    with pytest.raises(StoreError, match="deleted or replaced"):
        put(file)
    with pytest.raises(StoreError, match="deleted or replaced"):
        held(file)
    aside.replace(path)
    with pytest.raises(StoreError, match="deleted or replaced"):
        held(file)


def test_another_working_directory_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = SqliteFile("db", "thing", SCHEMA)
    monkeypatch.chdir("/")
    put(file)
    assert held(file) == ["x"]
    file.close()


def test_a_file_that_is_open_to_everybody_is_not_any_more(path: Path) -> None:
    path.touch()
    path.chmod(0o666)
    SqliteFile(path, "thing", SCHEMA).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert guard.counts()["store"] == 1


def test_a_group_that_may_write_still_may(path: Path) -> None:
    path.touch()
    path.chmod(0o660)
    SqliteFile(path, "thing", SCHEMA).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_a_symbolic_link_is_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        SqliteFile(path, "thing", SCHEMA)
    assert not (tmp_path / "elsewhere").exists()


def test_a_row_that_is_no_text_hides_no_other(file: SqliteFile, path: Path) -> None:
    put(file, "fine")
    other = sqlite3.connect(path)
    with other:
        other.execute("INSERT INTO thing (text) VALUES (CAST(x'ff' AS TEXT))")
    other.close()
    assert held(file) == ["fine", "\udcff"]


async def test_the_loop_goes_on_while_the_file_is_taken(file: SqliteFile, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(without_blocking(lambda: put(file)))
    for _ in range(3):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    other.close()
    await waiting
    assert held(file) == ["x"]


async def test_the_loop_does_not_wait_for_ever(
    file: SqliteFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.03)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy):
        await without_blocking(lambda: put(file))
    other.close()


async def test_an_end_that_waited_does_not_make_the_loop_wait(file: SqliteFile) -> None:
    failed: list[Exception] = []
    patience: list[float] = []

    def act() -> None:
        with file.writing() as connection:
            connection.execute("INSERT INTO thing (text) VALUES ('x')")
            at_the_end(lambda: put(file, "end"), failed.append)
        patience.append(sqlite_file._manner.patience_s)

    await without_blocking(act)
    assert (patience, sqlite_file._manner.patience_s) == ([0.0], sqlite_file.BUSY_S)
    assert (held(file), failed) == (["x", "end"], [])


def test_an_end_in_the_middle_of_a_transaction_waits_for_its_end(
    file: SqliteFile, path: Path, tmp_path: Path
) -> None:
    failed: list[Exception] = []
    other = SqliteFile(tmp_path / "other", "thing", SCHEMA)
    with file.writing() as connection:
        connection.execute("INSERT INTO thing (text) VALUES ('outer')")
        for each in (file, other):
            at_the_end(lambda each=each: put(each, "end"), failed.append)  # type: ignore[misc]
        with pytest.raises(StoreError, match="in the middle"):
            put(file, "nested")
        assert postponing.is_busy()
    assert not postponing.is_busy()
    assert held(file) == ["outer", "end"]
    assert held(other) == ["end"]
    assert failed == []
    other.close()


def test_an_end_that_fails_is_told_of(file: SqliteFile) -> None:
    failed: list[Exception] = []
    file.close()
    at_the_end(lambda: put(file), failed.append)
    assert [type(error) for error in failed] == [StoreError]


async def test_in_a_loop_too(file: SqliteFile) -> None:
    failed: list[Exception] = []
    file.close()
    at_the_end(lambda: put(file), failed.append)
    assert [type(error) for error in failed] == [StoreError]


def test_threads_take_turns(file: SqliteFile) -> None:
    def several(write: Callable[[SqliteFile], None]) -> None:
        for _ in range(20):
            write(file)

    threads = [threading.Thread(target=several, args=(put,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held(file)) == 80
