"""The stratified draw: proportional with a floor, the same for the same seed, and unbiased."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.failures.strata import allocate, draw, stratify

SIZES = st.dictionaries(st.tuples(st.text(max_size=3)), st.integers(1, 200), max_size=12)


@given(SIZES, st.integers(1, 100), st.integers(1, 5), st.integers(0, 3))
def test_places_are_given_out_once_and_nobody_gets_more_than_there_are(
    sizes: dict[tuple[str, ...], int], sample: int, floor: int, seed: int
) -> None:
    given_out = allocate(sizes, sample, floor, seed)
    assert given_out.keys() == sizes.keys()
    assert sum(given_out.values()) == min(sample, sum(sizes.values()))
    assert all(0 <= given_out[key] <= sizes[key] for key in sizes)
    if len(sizes) <= sample:
        assert all(given_out.values())


def test_shares_are_proportional_where_the_floor_allows_it() -> None:
    assert allocate({("a",): 900, ("b",): 90, ("c",): 10}, 20, 1) == {
        ("a",): 17,
        ("b",): 2,
        ("c",): 1,
    }
    assert allocate({("a",): 900, ("b",): 90, ("c",): 10}, 20, 4) == {
        ("a",): 12,
        ("b",): 4,
        ("c",): 4,
    }


def test_a_floor_that_the_sample_cannot_pay_is_lowered() -> None:
    assert allocate({("a",): 100, ("b",): 100}, 4, 50) == {("a",): 2, ("b",): 2}


def test_with_more_strata_than_places_the_largest_come_first() -> None:
    assert allocate({("a",): 1, ("b",): 3, ("c",): 2}, 2, 1) == {("a",): 0, ("b",): 1, ("c",): 1}


def test_of_equal_strata_the_seed_decides_and_none_is_favoured() -> None:
    sizes: dict[tuple[str, ...], int] = {(letter,): 1 for letter in "abcdef"}
    chosen = Counter(
        key for seed in range(300) for key, n in allocate(sizes, 2, 1, seed).items() if n
    )
    assert set(chosen) == set(sizes)
    assert min(chosen.values()) > 50  # 100 are expected of each


@given(st.lists(st.text(max_size=5), unique=True, max_size=40), st.integers(0, 5))
def test_the_draw_depends_on_seed_and_ids_alone(members: list[str], seed: int) -> None:
    shuffled = random.Random(1).sample(members, len(members))
    assert draw(members, 5, seed) == draw(shuffled, 5, seed)


def test_another_failure_changes_the_draw_as_little_as_can_be() -> None:
    members = [f"t{n}" for n in range(1000)]
    before, after = draw(members, 50, 7), draw([*members, "one more"], 50, 7)
    assert len(set(before) - set(after)) <= 1


def test_another_seed_draws_others() -> None:
    members = [f"t{n}" for n in range(1000)]
    assert len(set(draw(members, 50, 1)) & set(draw(members, 50, 2))) < 15


def test_with_the_weights_the_share_of_what_is_rare_is_right() -> None:
    """The floor draws the rare more often; its weight says so."""
    members = [(f"t{n}", ("rare" if n % 50 == 0 else "common",), 2.0) for n in range(1000)]
    estimates = []
    for seed in range(200):
        strata = stratify(members, 20, 5, seed)
        rare = next(stratum for stratum in strata if stratum.key == ("rare",))
        assert rare.each is not None
        assert (rare.size, rare.weight, len(rare.drawn)) == (20, 40.0, 5)
        estimates.append(sum(rare.each for id_ in rare.drawn if int(id_[1:]) < 500) / 1000)
    assert abs(sum(estimates) / len(estimates) - 0.01) < 0.001


def test_a_weight_that_nobody_knows_makes_the_strata_unknown() -> None:
    (stratum,) = stratify([("a", ("x",), 1.0), ("b", ("x",), None)], 1, 1, 0)
    assert (stratum.size, stratum.weight) == (2, None)
