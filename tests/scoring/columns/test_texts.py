"""Columns of text as codes."""

from typing import Any

import pyarrow as pa

from toolverdict.scoring.columns.texts import encoded, names


def words(codes: list[int | None], texts: list[str | None]) -> "pa.ChunkedArray[Any]":
    return pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), texts)])


def test_a_text_that_stands_twice_in_a_files_dictionary_is_one() -> None:
    found = encoded(words([0, 2, 1, None], ["a", "b", "a"]))
    assert found.codes[0] == found.codes[1]
    assert found.list() == ["a", "a", "b", None]
    assert len(found.texts) == 2


def test_nothing_in_a_dictionary_is_none() -> None:
    assert encoded(words([0, 1], ["a", None])).list() == ["a", None]


def test_an_empty_name_is_none_wherever_it_stands() -> None:
    assert names(words([0, 1, 2], ["", "a", ""])).list() == [None, "a", None]
    assert names(pa.chunked_array([pa.array(["", "a", None])])).list() == [None, "a", None]


def test_chunks_share_their_texts() -> None:
    found = encoded(pa.chunked_array([pa.array(["a", "b"]), pa.array(["b", "a"])]))
    assert found.codes.tolist() == [0, 1, 1, 0]
