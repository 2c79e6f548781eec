import copy
import hashlib
import hmac
import pickle
import re

import pytest

from toolverdict.instrument.errors import ConfigurationError
from toolverdict.instrument.hashing import HashKey, args_hash, idempotency_key_hash

KEY = HashKey.of(bytes(range(32)))


def test_the_hash_is_what_it_is_documented_to_be() -> None:
    message = b"toolargs/1\0" + b"refund" + b"\0" + b'{"order":"7"}'
    expected = hmac.new(bytes(range(32)), message, hashlib.sha256).hexdigest()
    assert args_hash(KEY, "refund", b'{"order":"7"}') == f"hmac-sha256:{expected}"


def test_tool_key_and_domain_make_a_difference() -> None:
    """B50: refund(order='7') is not cancel(order='7')."""
    canon = b'{"order":"7"}'
    other = HashKey.of(bytes(32))
    hashes = {
        args_hash(KEY, "refund", canon),
        args_hash(KEY, "cancel", canon),
        args_hash(other, "refund", canon),
        idempotency_key_hash(KEY, "refund", canon),
    }
    assert len(hashes) == 4


def test_a_key_is_not_disclosed() -> None:
    assert KEY.secret.hex() not in repr(KEY)
    assert str(KEY.secret) not in repr(KEY)
    assert re.fullmatch("[0-9a-f]{12}", KEY.id)
    assert KEY.id != hashlib.sha256(KEY.secret).hexdigest()[:12]


def test_text_and_bytes_are_the_same_key() -> None:
    assert HashKey.of(bytes(range(32)).hex() + "\n") == KEY


def test_ephemeral_keys_say_so_and_differ() -> None:
    one, other = HashKey.ephemeral(), HashKey.ephemeral()
    assert one.id.startswith("ephemeral-")
    assert one.id != other.id
    assert len(one.secret) == 32


@pytest.mark.parametrize(
    ("key", "problem"),
    [("zz" * 16, "is not hexadecimal"), (b"short", "has 5 bytes"), ("", "0 bytes")],
)
def test_a_bad_key_is_refused_with_the_way_out(key: bytes | str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        HashKey.of(key, source="TOOLVERDICT_HASH_KEY")
    assert "secrets.token_hex(32)" in str(caught.value)
    assert "TOOLVERDICT_HASH_KEY" in str(caught.value)


@pytest.mark.parametrize("length", [16, 63, 64, 65, 200])
def test_a_digest_is_hmac_whatever_the_length_of_the_key(length: int) -> None:
    key = HashKey.of(bytes(range(length)))
    for message in (b"", b"x", b"x" * 1000):
        assert key.digest(message) == hmac.digest(bytes(range(length)), message, "sha256").hex()


def test_a_key_travels_and_is_in_no_representation() -> None:
    for other in (pickle.loads(pickle.dumps(KEY)), copy.deepcopy(KEY)):
        assert other == KEY
        assert hash(other) == hash(KEY)
        assert other.digest(b"x") == KEY.digest(b"x")
    assert repr(KEY) == f"HashKey(id={KEY.id!r})"
