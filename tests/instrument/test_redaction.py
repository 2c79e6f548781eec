import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument import settings, tool, trajectory
from toolverdict.instrument.redaction import is_secret, redactor
from toolverdict.instrument.testing import TEST_KEY, capture_spans

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def redacted(value: Any) -> Any:
    redact = redactor(settings.Settings(key=TEST_KEY, capture="redacted"))
    assert redact is not None
    return redact(value)


@pytest.mark.parametrize(
    ("text", "secret", "kind"),
    [
        ("pay with 4111 1111 1111 1111 now", "1111", "card"),
        ("4111-1111-1111-1111", "4111", "card"),
        ("to DE89 3704 0044 0532 0130 00.", "3704", "iban"),
        ("to GB29NWBK60161331926819", "NWBK", "iban"),
        ("ask ada.lovelace+x@example.co.uk", "lovelace", "email"),
        ("call +49 30 123456-78", "123456", "phone"),
        (f"key {AWS}", "IOSFOD", "secret"),
        (f"key={GITHUB}", "16C7e42F", "secret"),
        ("xoxb-123456789012-abcdef", "123456789012", "secret"),
        ("sk-proj-abcdefghijklmnop1234", "abcdefgh", "secret"),
        (f"jwt {JWT}", "eyJzdWIi", "secret"),
        (PEM, "MIIEow", "secret"),
        (PEM[:50], "MIIEow", "secret"),
        ("Bearer x", " x", "secret"),
        ("https://h/cb?a=1&token=SECRET&b=2", "SECRET", "secret"),
        ("https://h/cb?X-Amz-Signature=1&access_token=SECRET", "SECRET", "secret"),
        ("https://u:p4ss@github.com/a/b.git", "p4ss", "userinfo"),
        ("login failed token=sk-123", "sk-123", "secret"),
        ("the 'password': 'hunter2' is", "hunter2", "secret"),
        ('{"a": {"password": "hunter2"}}', "hunter2", "secret"),
        ('{"a": "{\\"b\\": [{\\"api_key\\": \\"hunter2\\"}]}"}', "hunter2", "secret"),
        ('{"password": "hunter2", broken', "hunter2", "secret"),
    ],
    ids=range(22),
)
def test_secrets_in_values_are_replaced(text: str, secret: str, kind: str) -> None:
    """B32, B34: under harmless keys, in URLs, messages, and JSON in a text."""
    assert secret in text or secret == "MIIEow"
    for value in (text, {"detail": text}, [text], {text: 1}):
        found = json.dumps(redacted(value))
        assert secret not in found
        assert f"[{kind}:" in found


def test_the_rest_of_a_url_is_preserved() -> None:
    found = redacted("https://u:p@github.com/a/b.git?x=1&token=t&z=1#top")
    assert found.startswith("https://[userinfo:")
    assert "]@github.com/a/b.git?x=1&token=[secret:" in found
    assert found.endswith("]&z=1#top")


@pytest.mark.parametrize(
    "text",
    [
        *("order-4711", "2026-11-30T15:00:00+01:00", "00000000-0000-4000-8000-000000000001"),
        *("1234567890123456", "4111111111111112", "978-3-16-148410-0", "1.2.3", "@ada", "a@b"),
        *("DE89370400440532013001", "the tokens were counted", "skeleton-key-of-the-house"),
        *("d670460b4b4aece5915caf5c68d12f560a9fe3e4", "https://h/a?page=2", "1700000000000"),
    ],
)
def test_what_looks_alike_stays(text: str) -> None:
    assert redacted({"detail": text}) == {"detail": text}


@pytest.mark.parametrize(
    "key",
    [
        *("password", "PASSWORD", "db_password", "api_key", "apiKey", "X-Api-Key", "Authorization"),
        *("cookie", "Set-Cookie", "access_token", "accessToken", "client_secret", "cvv"),
    ],
)
def test_secrets_under_keys_are_replaced_whole(key: str) -> None:
    found = redacted({"a": [{key: "harmless"}, {key: {"b": "harmless"}}, {key: 12345}]})
    assert "harmless" not in str(found)
    assert "12345" not in str(found)
    assert redacted({key: None}) == {key: None}


@pytest.mark.parametrize("key", ["max_tokens", "author", "spinner", "amount", "key", "monkey"])
def test_other_keys_are_not(key: str) -> None:
    assert not is_secret(key)
    assert redacted({key: 1}) == {key: 1}


def test_equal_values_stay_equal_and_are_keyed() -> None:
    first, second = redacted(["4111 1111 1111 1111", 4111111111111111])
    assert first == second
    assert redacted("A@x.org") == redacted("a@x.org") != redacted("b@x.org")
    other = redactor(settings.Settings(capture="redacted"))
    assert other is not None
    assert other("a@x.org") != redacted("a@x.org")


def test_what_is_not_looked_at_is_not_recorded() -> None:
    text = "x" * 7670 + " " + AWS + " " + "y" * 10_000 + " ada@example.org"
    found = redacted(text)
    assert "IOSFOD" not in found
    assert "example" not in found
    assert found.endswith(f"[not scanned:{len(text)} characters]")
    many = redacted([f"{'z' * 8000}{n}" for n in range(30)])
    assert many[-1] == "[not scanned:8002 characters]"


@pytest.mark.parametrize(
    "text",
    [
        *("a" * 8192, "a@" * 4096, "+1" * 4096, "1 " * 4096, "4-" * 4096, "?a=" * 2730),
        *("eyJ" * 2730, "://" * 2730, "-----BEGIN PRIVATE KEY-----" * 300, "token" * 1638),
        *("AB12 " * 1638, "token=" * 1365, "a." * 4096, "[" * 8192, '"password":"' * 680),
    ],
    ids=range(15),
)
def test_time_is_bounded(text: str) -> None:
    begun = time.process_time()
    redacted(text)
    assert time.process_time() - begun < 1.0


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(redacted(text), str)


def test_arguments_results_and_user_input_are_redacted() -> None:
    @tool(exclude=["key"])
    def fetch(url: str, key: str) -> dict[str, str]:
        return {"password": "hunter2", "from": url}

    with capture_spans(capture="redacted") as spans, trajectory(user_input="I am ada@example.org"):
        fetch("https://u:p@h/?token=SECRET", "excluded")
    everything = str([dict(span.attributes or {}) for span in spans])
    for secret in ("hunter2", "u:p", "SECRET", "excluded", "ada@"):
        assert secret not in everything
    found = spans.tool_calls[0].attributes or {}
    assert "@h/?token=[secret:" in str(found["gen_ai.tool.call.arguments"])
    assert json.loads(str(found["gen_ai.tool.call.result"])).keys() == {"password", "from"}
