"""What the tests of all adapters share: one policy, and spans read as plain values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from toolverdict.instrument.policy import Policy

POLICY = """\
version: 1
id: shop
rules:
  - {id: reading, effect: allow, tools: [get_order]}
  - {id: never-delete, effect: deny, tools: [delete_user], reason: users are never deleted}
  - {id: ask, effect: require_approval, labels: [payment]}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """Reading is allowed, deleting users denied, payments need an approval."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return Policy.load(path)


class Seen(Mapping[str, Any]):
    """The attributes of one span."""

    def __init__(self, span: ReadableSpan) -> None:
        self.span = span
        self._attributes = dict(span.attributes or {})

    def __getitem__(self, key: str) -> Any:
        return self._attributes[key]

    def __iter__(self) -> Any:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)


@pytest.fixture
def seen() -> Any:
    """Reads spans: a list of mappings, or of the values of some attributes."""

    def read(spans: Sequence[ReadableSpan], *names: str) -> list[Any]:
        calls = [Seen(span) for span in spans]
        if not names:
            return calls
        rows = [tuple(call.get(name) for name in names) for call in calls]
        return [row[0] for row in rows] if len(names) == 1 else rows

    return read
