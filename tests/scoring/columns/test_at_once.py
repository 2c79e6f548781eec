"""Calls that ran at once, of many trajectories in one go, are those of each by itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.columns.at_once import at_once
from toolverdict.scoring.parallel import Step, overlapping

steps = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9), st.sampled_from([0, 0, 0, 1])), max_size=7
)


@given(st.lists(steps, max_size=5), st.booleans())
def test_like_one_by_one(trajectories: list[list[tuple[int, int, int]]], far: bool) -> None:
    """Also where times are so far apart that they cannot be compared in one go."""
    scale = 1 << 58 if far else 1
    rows = [
        (number, start * scale // 20, (start * scale + lasts * scale) // 20, parent)
        for number, one in enumerate(trajectories)
        for start, lasts, parent in sorted(one)
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    wanted = []
    for one in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == one]
        groups = overlapping(Step(start, end, parent) for _, start, end, parent in own)
        wanted += [groups.get(index, -1) for index in range(len(own))]
    assert at_once(*columns).tolist() == wanted


def test_no_call() -> None:
    nothing = np.array([], dtype=np.int64)
    assert at_once(nothing, nothing, nothing, nothing).tolist() == []
