"""Libraries must not fill the disk, nor print what a client sent."""

import logging

from toolverdict.collector import library_logs
from toolverdict.collector.library_logs import LibraryFilter


def _record(error: Exception) -> logging.LogRecord:
    info = (type(error), error, None)
    return logging.LogRecord("asyncio", logging.ERROR, "", 1, "Error from %s", ("x",), info)


def test_no_payload_and_no_traceback() -> None:
    record = _record(ValueError("b'a secret'"))
    assert LibraryFilter().filter(record)
    text = logging.Formatter().format(record)
    assert "secret" not in text
    assert "\n" not in text
    assert "Error from %s (exception: ValueError" in text


def test_only_the_first_line_of_what_asyncio_says() -> None:
    record = _record(ValueError())
    record.msg, record.args = "socket.accept() failed\nfuture: <Task b'a secret'>", ()
    assert LibraryFilter().filter(record)
    assert "secret" not in record.getMessage()


def test_one_line_in_a_while_with_a_count() -> None:
    limited = LibraryFilter()
    records = [_record(ValueError()) for _ in range(100)]
    assert sum(map(limited.filter, records)) == 1
    limited._next_s = 0.0
    assert limited.filter(last := _record(ValueError()))
    assert "99 more lines" in last.getMessage()
    assert library_logs.INTERVAL_S > 1
