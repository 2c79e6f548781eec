"""What a trace says cannot become markup: read by a CommonMark parser, it is text and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from toolverdict.scoring.failures.markdown import code, escaped

HOSTILE = [
    "# heading",
    "\n\n# heading\n",
    "[a](http://evil.example)",
    "![a](http://evil.example/x.png)",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "`code` ``more`` ```fence",
    "```\n# out of the fence",
    "*bold* _it_ ~~no~~",
    "http://evil.example and www.evil.example and eve@evil.example",
    "- item\n- item",
    "| a | b |\n|---|---|",
    "&lt;b&gt; &#60;",
    "[ref]: http://evil.example",
    "\\`a\\`",
    "a\u202eb\x1b[31m\x00",
    "`",
    " ",
    "",
    "    indented",
    "1. one",
    "---",
]
PARSER = MarkdownIt("gfm-like", {"linkify": False, "html": True}).disable("linkify")
ALLOWED = {"text", "code_inline", "text_special", "paragraph_open", "paragraph_close", "inline"}


def tokens(text: str) -> list[Token]:
    found = []
    for token in PARSER.parse(text):
        found.append(token)
        found.extend(token.children or ())
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_is_one_code_span(text: str) -> None:
    found = tokens(f"tool {code(text)}: ok")
    assert {token.type for token in found} <= ALLOWED
    assert [token.type for token in found].count("code_inline") == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_a_sentence_is_text(text: str) -> None:
    found = tokens(f"said: {escaped(text)}.")
    assert {token.type for token in found} <= ALLOWED - {"code_inline"}


@given(st.text(max_size=60))
def test_nothing_that_anybody_writes_is_markup(text: str) -> None:
    assert {t.type for t in tokens(f"said: {escaped(text)}.")} <= ALLOWED - {"code_inline"}
    assert {t.type for t in tokens(f"tool {code(text)}: ok")} <= ALLOWED


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
def test_a_reader_sees_what_was_said(text: str) -> None:
    found = tokens(f"said: {escaped(text)}.")
    shown = "".join(t.content for t in found if t.type in ("text", "text_special"))
    assert shown == f"said: {text}."


def test_no_program_finds_a_link_or_a_mention_in_plain_text() -> None:
    made = escaped("see http://a.example, www.a.example, @team, #12 and eve@a.example")
    for bait in ("http:", "www.", "@", "#12"):
        assert bait not in made


def test_long_texts_are_cut() -> None:
    assert len(code("x" * 10_000)) < 100
    assert len(escaped("x" * 10_000)) < 500
