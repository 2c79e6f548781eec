"""Who decides by reading is warned of text that reads as something else."""

import pytest

from toolverdict.instrument.stores.lookalikes import made_visible, warnings

HONEST = ["", "pay 12.50 € to Zoë", "支払い 東京", "ελληνικά", "Привет мир", "a\nb\tc", "日本 abc"]
HIDDEN = {
    "bidi": ("invoice\u202egnp.exe", "direction"),
    "isolate": ("a\u2066b", "direction"),
    "zero width": ("pay\u200bpal", "cannot be seen"),
    "joiner": ("pay\u200dpal", "cannot be seen"),
    "tag": ("ok\U000e0041", "cannot be seen"),
    "variation": ("ok\ufe01", "cannot be seen"),
    "filler": ("ok\u3164", "cannot be seen"),
    "control": ("ok\x1b[2K", "cannot be seen"),
    "return": ("ok\rno", "cannot be seen"),
    "no-break space": ("a\u00a0b", "cannot be seen"),
    "line": ("a\u2028b", "cannot be seen"),
}


@pytest.mark.parametrize("text", HONEST)
def test_honest_text_is_shown_as_it_is(text: str) -> None:
    assert warnings(text) == ()
    assert made_visible(text) == text


@pytest.mark.parametrize(("text", "warning"), HIDDEN.values(), ids=HIDDEN)
def test_what_is_hidden_is_named_and_made_visible(text: str, warning: str) -> None:
    [found] = warnings(text)
    assert warning in found
    assert "\\" in made_visible(text)
    assert warnings(made_visible(text)) == ()


def test_words_of_several_alphabets_are_named() -> None:
    assert "p\u0430ypal" in warnings("to p\u0430ypal")[0]
