import random

from toolverdict.instrument.span_ids import SystemIdGenerator


def test_a_seed_makes_no_id_again() -> None:
    """B53: processes that share a seed, forked or not, do not share ids."""
    ids = SystemIdGenerator()
    made = set()
    for _ in range(3):
        random.seed(42)
        made |= {ids.generate_span_id(), ids.generate_trace_id()}
    assert len(made) == 6
    assert all(made)


def test_ids_have_their_size() -> None:
    ids = SystemIdGenerator()
    assert max(ids.generate_span_id() for _ in range(200)).bit_length() in range(57, 65)
    assert max(ids.generate_trace_id() for _ in range(200)).bit_length() in range(121, 129)
