"""The maps to published taxonomies: complete, cited, and in our own categories."""

import pytest

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.attribution.taxonomies import Taxonomy, taxonomies
from toolverdict.scoring.model import Category, ForbiddenState


@pytest.mark.parametrize("taxonomy", taxonomies(), ids=lambda one: one.name)
def test_every_category_is_mapped_and_no_other(taxonomy: Taxonomy) -> None:
    details = {*(o.value for o in Outcome), *(s.value for s in ForbiddenState)}
    named = {key.partition("/")[0] for key in taxonomy.words}
    assert named == {category.value for category in Category}
    assert {key.partition("/")[2] for key in taxonomy.words} <= {"", *details}
    assert "arXiv:" in taxonomy.source


def test_how_a_call_ended_comes_before_its_category() -> None:
    words = {one.name: one.word_for("call_failed", "timeout") for one in taxonomies()}
    assert words == {"AgentRx": "System Failure", "MAST": None, "TRAIL": "Timeout Issue"}
    assert taxonomies()[0].word_for("nothing of ours") is None
