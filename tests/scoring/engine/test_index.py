"""Which traces lie in several units, by numbers that stand for their ids."""

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from toolverdict.collector import LakeError
from toolverdict.scoring.engine import index
from toolverdict.scoring.engine.index import in_several
from toolverdict.scoring.engine.keys import are_in, keys_of, row_keys


def test_a_key_is_of_the_id_wherever_it_stands() -> None:
    ids = ["0" * 31 + "1", "f" * 32, "a" * 16 + "0123456789abcdef"]
    keys = keys_of(pa.array(ids)).tolist()
    assert len(set(keys)) == 3
    assert keys_of(pa.array(["x", *ids]).slice(1)).tolist() == keys
    rows = pa.table({"trace_id": [ids[1], ids[0], ids[1]]})
    assert row_keys(rows).tolist() == [keys[1], keys[0], keys[1]]


@pytest.mark.parametrize("wrong", ["", "abc", "g" * 32, "é" * 16])
def test_what_is_no_trace_id_is_told(wrong: str) -> None:
    with pytest.raises(LakeError, match="is not 32 hex digits"):
        keys_of(pa.array(["0" * 32, wrong]))


@pytest.mark.parametrize("at_once", [1, 7, 1_000])
def test_traces_of_several_units_are_found_whatever_is_compared_at_once(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(index, "_AT_ONCE", at_once)
    for seed in range(20):
        drawn = random.Random(seed)
        every = [0, (1 << 64) - 1, *(drawn.getrandbits(64) for _ in range(12))]
        folders = [
            (drawn.choice((-1, 0, 1, 2)), sorted(drawn.sample(every, drawn.randint(0, 8))))
            for _ in range(6)
        ]
        found = in_several([(unit, np.array(keys, np.uint64)) for unit, keys in folders])
        units: dict[int, set[int]] = defaultdict(set)
        for unit, keys in folders:
            for key in keys:
                units[key].add(unit)
        for unit in range(3):
            shared, earlier = found.get(unit, (np.array([]), np.array([])))
            mine = [key for key in sorted(units) if unit in units[key] and len(units[key]) > 1]
            assert earlier.tolist() == [key for key in mine if -1 in units[key]]
            assert shared.tolist() == [key for key in mine if -1 not in units[key]]


def test_membership_in_sorted_keys() -> None:
    keys = np.array([5, 1, 9], np.uint64)
    assert are_in(keys, np.array([1, 5, 7], np.uint64)).tolist() == [True, True, False]
    assert are_in(keys, np.array([], np.uint64)).tolist() == [False] * 3


def test_ids_that_a_client_made_alike_have_keys_of_their_own() -> None:
    """With the halves of an id as its key, one trace could be hidden behind another."""
    ids = [left + right for left in ("0" * 16, "a" * 16) for right in ("1" * 16, "b" * 16)]
    assert len(set(keys_of(pa.array(ids)).tolist())) == 4
