"""What counts as one name, and what only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.labels import checked
from toolverdict.instrument.likeness import folded, skeleton

ALIKE = [
    *["Evil.Example", "evil.ex\u0430mple", "\u0395vil.example", "ev\u00adil.example"],
    *["\uff45vil.example", "evil\u3002example", "evil.example\u200b", "evil.ex\u03b1mple"],
    *["e\u0301vil.example".replace("\u0301", "\u0335"), "EV\u0406L.\u0415XAMPLE"],
]


@pytest.mark.parametrize("text", ALIKE, ids=ascii)
def test_what_looks_alike_has_one_skeleton(text: str) -> None:
    assert skeleton(text) == "evil.example"


@pytest.mark.parametrize("text", ["evil.examp1e", "evil example", "evil.exampl\u00e9", "evil"])
def test_what_does_not_has_another(text: str) -> None:
    assert skeleton(text) != "evil.example"


@given(st.text(), st.text())
def test_what_counts_as_one_name_looks_like_one(one: str, other: str) -> None:
    assert skeleton(folded(one)) == skeleton(folded(folded(one)))
    if folded(one) == folded(other):
        assert skeleton(folded(one)) == skeleton(folded(other))


@given(st.text())
def test_a_skeleton_is_one_line_that_can_be_seen(text: str) -> None:
    assert skeleton(text).isprintable()


def test_a_name_of_another_alphabet_counts_as_another() -> None:
    assert folded("\uff21nn ") == folded("ANN") == "ann"
    assert folded("\u0430nn") != "ann"


@pytest.mark.parametrize("label", ["payment", "untrusted", "read", "cheap", "pii", "PII"])
def test_labels_are_taken_as_they_are(label: str) -> None:
    assert checked(label) == label


@pytest.mark.parametrize(
    "label", ["PAYMENT", " payment", "payment\u200b", "p\u0430yment", "external message", "writes"]
)
def test_what_is_nearly_a_dangerous_label_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="did you mean"):
        checked(label)
