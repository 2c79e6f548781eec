"""The A/A test: it finds few false alarms where nothing changed, and says how it split."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from toolverdict.scoring.gate.evidence import Results, Scored
from toolverdict.scoring.gate.gated import GATED
from toolverdict.scoring.gate.self_test import self_test
from toolverdict.scoring.gate.testing import scored
from toolverdict.scoring.model import Share

RATES = tuple(one for one in GATED if one.rate in ("pass_rate", "retry_waste_rate"))


def results(trajectories: list[Scored]) -> Results:
    empty = pa.table({})
    return Results(Path("out"), {}, tuple(trajectories), empty, empty)


def trajectories(count: int, trials: int = 0) -> list[Scored]:
    random = np.random.default_rng(5)
    made = []
    for number in range(count):
        difficulty = random.random()
        for trial in range(trials or 1):
            calls = int(random.integers(1, 12))
            wasted = int(random.binomial(calls, 0.1 * random.random()))
            passed = bool(random.random() < difficulty)
            made.append(
                scored(
                    f"{number}.{trial}",
                    {
                        "pass_rate": Share(int(passed), 1),
                        "retry_waste_rate": Share(wasted, calls),
                    },
                    case=str(number) if trials else None,
                )
            )
    return made


@pytest.mark.parametrize("trials", [0, 4])
def test_false_alarms_are_as_rare_as_the_confidence_says(trials: int) -> None:
    found = self_test(results(trajectories(120, trials)), RATES, splits=200, seed=1)
    assert found.paired is bool(trials)
    assert found.alarms.denominator == 200
    assert not found.too_many
    assert found.alarms.value is not None
    assert found.alarms.value <= 0.06
    assert sum(found.by_rate.values()) >= found.alarms.numerator


def test_it_can_find_false_alarms_and_calls_them_too_many() -> None:
    """With next to no confidence half of the comparisons are alarms."""
    found = self_test(results(trajectories(60)), RATES, confidence=0.51, splits=200)
    assert found.alarms.value is not None
    assert found.alarms.value > 0.1
    assert not found.too_many  # 49 % are what was asked for


def test_the_seed_decides_and_the_order_of_trajectories_does_not() -> None:
    some = trajectories(40)
    first = self_test(results(some), RATES, splits=60, seed=9)
    assert self_test(results(some[::-1]), RATES, splits=60, seed=9) == first


def test_nothing_to_split_is_none() -> None:
    assert self_test(results([]), RATES).alarms.value is None
    assert self_test(results(trajectories(1)), RATES).alarms.value is None
