"""What is worked out once for a run."""

from toolverdict.scoring.remembering import for_the_last


def test_the_same_objects_give_the_same_result_and_others_a_new_one() -> None:
    @for_the_last
    def made(one: list[int], other: object = None) -> list[int]:
        return [*one]

    first: list[int] = []
    known = made(first)
    assert made(first) is known
    assert made([]) is not known, "equal is not the same"
    assert made(first) is not known, "only the last is kept"
    assert made(first, 1) is not made(first)
