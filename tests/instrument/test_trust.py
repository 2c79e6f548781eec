"""Trusted input: only what was said, as a whole, and only where everything that was said is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.trust import MAX_CHARS, TrustedInput, TrustedTexts


def said(*texts: object) -> TrustedInput:
    heard = TrustedInput()
    for text in texts:
        heard.note_user(text)
    return heard


@pytest.mark.parametrize(
    ("value", "trusted"),
    [
        ("ann@shop.example", True),
        ("ANN@Shop.Example", True),
        ("o-1", False),  # o-12 was said
        ("o-12", True),
        ("nn@shop.example", False),  # not even a part of a name
        ({"to": "ann@shop.example", "order": ["o-12"]}, True),
        ({"to": "ann@shop.example", "order": ["o-13"]}, False),
        (12.5, True),
        (13.5, None),  # perhaps in other words
        (True, None),
        ("", None),
        (None, None),
    ],
)
def test_a_value_is_trusted_when_all_of_it_was_said(value: object, trusted: bool | None) -> None:
    heard = said("Pay 12.5 for O-12 to Ann@shop.example, please.")
    assert heard.is_trusted(value) is trusted


def test_messages_and_results_count_as_said() -> None:
    heard = said([{"role": "user", "parts": [{"type": "text", "content": "pay ann"}]}])
    assert heard.is_trusted("bob@shop.example") is False
    heard.note_result({"found": [{"mail": "bob@shop.example"}]})
    assert heard.is_trusted("bob@shop.example") is True


def test_without_the_users_words_nothing_is_known_to_be_missing() -> None:
    heard = TrustedInput()
    heard.note_result("ann")
    assert (heard.is_trusted("ann"), heard.is_trusted("eve")) == (True, None)


def test_what_is_too_much_or_cannot_be_read_may_have_held_anything() -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("secret")

    for unknown in ("x" * (MAX_CHARS + 1), Hostile(a=1)):
        heard = said("pay ann", unknown)
        assert (heard.is_trusted("ann"), heard.is_trusted("eve")) == (True, None)
    assert said("x").is_trusted(Hostile(a=1)) is None
    assert said("x").is_trusted(["x"] * 2000) is None


def test_only_the_first_texts_are_asked_where_that_is_wanted() -> None:
    texts = TrustedTexts()
    texts.add("ann")
    first = len(texts)
    texts.add("eve")
    assert texts.hold("eve")
    assert not texts.hold("eve", first=first)


@given(st.text(min_size=1, max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_what_stands_between_blanks_was_said(word: str, before: str, after: str) -> None:
    texts = TrustedTexts()
    texts.add(f"{before} {word} {after}")
    assert texts.hold(word)
