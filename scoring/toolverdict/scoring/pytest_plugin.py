"""A pytest plugin: the tool calls of the agent under test, asserted against a case or a policy.

::

    def test_refund(toolverdict_agent):
        run_agent("Please refund order A123")
        toolverdict_agent.assert_case("cases.yaml", case_id="tool_refund_001")

pytest loads this module in every run of whoever has the package installed, so it imports nothing of
ours until a test asks for the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toolverdict.scoring.assertions import WatchedAgent


@pytest.fixture
def toolverdict_agent(request: pytest.FixtureRequest) -> "Iterator[WatchedAgent]":
    """What instrumented tools do during the test, with arguments and results, and assertions on it.

    Files of cases and policies are looked for beside the test's own file first.
    """
    from toolverdict.instrument.testing import capture_spans
    from toolverdict.scoring.assertions import WatchedAgent

    with capture_spans(capture="full") as spans:
        yield WatchedAgent(spans, request.path.parent)
