"""Idempotency keys and audit records in the pipeline: once, in order, and never silently."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import NoOpTracerProvider

from toolverdict.instrument import (
    Approval,
    ApprovalRequest,
    RateLimited,
    Refused,
    ToolDenied,
    ToolTimeout,
    settings,
    tool,
    trajectory,
)
from toolverdict.instrument.errors import (
    AlreadyDone,
    AuditFailed,
    CallInProgress,
    IdempotencyConflict,
    OutcomeUnknown,
    StoreError,
)
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.stores import audit
from toolverdict.instrument.stores.idempotency import IdempotencyStore, Reconciled, Unknown
from toolverdict.instrument.testing import TEST_KEY, CapturedSpans, capture_spans

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    RAN.clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[IdempotencyStore]:
    with IdempotencyStore(tmp_path / "keys.db", key=TEST_KEY) as opened:
        yield opened


@pytest.fixture
def spans() -> Iterator[CapturedSpans]:
    with capture_spans() as captured:
        yield captured


def keep(**stores: Any) -> None:
    """Keeps keys or records from now on; the fixture puts the settings back."""
    from dataclasses import replace

    settings.replace(replace(settings.current(), **stores))


@tool(labels=["payment"], idempotency_key="order")
def pay(order: str, amount: float) -> dict[str, Any]:
    RAN.append(order)
    return {"order": order, "amount": amount}


def attributes(spans: CapturedSpans, number: int) -> dict[str, Any]:
    return dict(spans.tool_calls[number].attributes or {})


def test_the_same_call_again_is_answered_and_not_run(
    spans: CapturedSpans, store: IdempotencyStore
) -> None:
    keep(idempotency=store)
    assert pay("o-1", 5.0) == pay("o-1", 5.0) == {"order": "o-1", "amount": 5.0}
    assert RAN == ["o-1"]
    first, second = attributes(spans, 0), attributes(spans, 1)
    assert (first["idempotency.status"], first["tool.executed"]) == ("new", True)
    assert (second["idempotency.status"], second["tool.executed"]) == ("replayed", False)
    assert second["tool.outcome"] == "ok"


def test_the_same_key_for_other_arguments_stops_the_call(
    spans: CapturedSpans, store: IdempotencyStore
) -> None:
    """An answer to another question is worse than none."""
    keep(idempotency=store)
    pay("o-1", 5.0)
    with pytest.raises(IdempotencyConflict):
        pay("o-1", 9999.0)
    assert RAN == ["o-1"]
    assert attributes(spans, 1)["idempotency.status"] == "conflict"
    assert attributes(spans, 1)["tool.outcome"] == "denied"


@pytest.mark.parametrize(
    ("raised", "again"),
    [(Refused("no"), True), (ToolTimeout("late"), False), (RuntimeError("?"), False)],
    ids=["nothing happened", "nobody knows", "unheard of"],
)
def test_a_failure_leaves_the_key_free_only_if_nothing_happened(
    spans: CapturedSpans, store: IdempotencyStore, raised: Exception, again: bool
) -> None:
    keep(idempotency=store)

    @tool(labels=["payment"], idempotency_key="order")
    def fail(order: str) -> str:
        RAN.append(order)
        raise raised

    with pytest.raises(type(raised)):
        fail("o-1")
    with pytest.raises(type(raised) if again else OutcomeUnknown):
        fail("o-1")
    assert len(RAN) == (2 if again else 1)


def test_a_tool_that_can_find_out_goes_on_from_there(
    spans: CapturedSpans, store: IdempotencyStore
) -> None:
    keep(idempotency=store)

    @tool(
        labels=["payment"],
        idempotency_key="order",
        reconcile=lambda unknown: Reconciled("succeeded", "paid after all"),
    )
    def slow(order: str) -> str:
        RAN.append(order)
        raise ToolTimeout("late")

    with pytest.raises(ToolTimeout):
        slow("o-1")
    assert slow("o-1") == "paid after all"
    assert RAN == ["o-1"]


def test_at_the_same_time_the_body_runs_once(spans: CapturedSpans, store: IdempotencyStore) -> None:
    keep(idempotency=store)

    def one(_: int) -> str:
        try:
            pay("o-1", 5.0)
        except CallInProgress:
            return "in progress"
        return "done"

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(one, range(8)))
    assert "done" in answers
    assert RAN == ["o-1"]


def test_async_tools_are_on_record_too(spans: CapturedSpans, store: IdempotencyStore) -> None:
    keep(idempotency=store)

    @tool(idempotency_key="order")
    async def book(order: str) -> str:
        RAN.append(order)
        await asyncio.sleep(0)
        return f"booked {order}"

    async def twice() -> list[str]:
        return [await book("o-1"), await book("o-1")]

    assert asyncio.run(twice()) == ["booked o-1"] * 2
    assert RAN == ["o-1"]


def test_nobody_is_asked_about_a_call_that_was_made(store: IdempotencyStore) -> None:
    asked = []

    def approver(request: ApprovalRequest) -> Approval:
        asked.append(request.tool)
        return request.approve("me")

    rules = Policy.parse(
        "{version: 1, id: p, rules: [{id: r, effect: require_approval, tools: [pay]}]}"
    )
    with capture_spans(policy=rules, approver=approver):
        keep(idempotency=store)
        pay("o-1", 5.0)
        pay("o-1", 5.0)
    assert asked == ["pay"]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[[], audit.Verification]]:
    path = tmp_path / "audit.db"
    key = HashKey.of("17" * 32)
    with audit.AuditLog(path, key=key, checkpoint_key=TEST_KEY) as opened, capture_spans():
        keep(audit=opened)
        yield lambda: audit.verify(path, key=key, checkpoint_key=TEST_KEY, checkpoints=[])


def test_every_call_is_on_record_before_and_after(
    log: Callable[[], audit.Verification],
) -> None:
    pay("o-1", 5.0)
    found = log()
    assert (found.records, found.problems, found.unfinished) == (2, (), ())


def test_a_dangerous_tool_that_cannot_be_put_on_record_does_not_run(
    spans: CapturedSpans, tmp_path: Path, store: IdempotencyStore
) -> None:
    closed = audit.AuditLog(tmp_path / "audit.db", key=None, checkpoint_key=TEST_KEY)
    closed.close()
    keep(audit=closed, idempotency=store)
    with pytest.raises(AuditFailed):
        pay("o-1", 5.0)
    assert RAN == []
    keep(audit=None)
    assert pay("o-1", 5.0)["order"] == "o-1"


def lost_once(order: str) -> None:
    RAN.append(order)
    if len(RAN) == 1:
        raise ConnectionError


HAPPENED = Reconciled("succeeded", {"paid": True})


@tool(labels=["payment"], idempotency_key="order", reconcile=lambda unknown: HAPPENED)
def pay_in_steps(order: str) -> Iterator[str]:
    yield "charging"
    lost_once(order)


@tool(labels=["payment"], idempotency_key="order", reconcile=lambda unknown: HAPPENED)
async def pay_in_async_steps(order: str) -> AsyncIterator[str]:
    yield "charging"
    lost_once(order)


async def every_async_step() -> list[str]:
    return [step async for step in pay_in_async_steps("o-1")]


@pytest.mark.parametrize(
    "every_step", [lambda: list(pay_in_steps("o-1")), lambda: asyncio.run(every_async_step())]
)
def test_a_generator_that_was_read_before_is_not_begun_again(
    every_step: Callable[[], list[str]], store: IdempotencyStore, spans: CapturedSpans
) -> None:
    keep(idempotency=store)
    with pytest.raises(ConnectionError):
        every_step()
    with pytest.raises(AlreadyDone, match="items were not kept"):
        every_step()
    assert RAN == ["o-1"]
    second = spans.tool_calls[-1].attributes or {}
    assert (second["idempotency.status"], second["tool.executed"]) == ("replayed", False)


def test_what_a_nested_tool_says_is_not_said_of_the_outer_one(
    spans: CapturedSpans, store: IdempotencyStore
) -> None:
    """The charge was made, then the mail was refused: the charge is not to be made again."""
    keep(idempotency=store)

    @tool
    def notify() -> None:
        raise RateLimited("mail quota")

    @tool(labels=["payment"], idempotency_key="order")
    def charge_and_notify(order: str) -> None:
        RAN.append(order)
        notify()

    with pytest.raises(RateLimited):
        charge_and_notify("o-1")
    with pytest.raises(OutcomeUnknown):
        charge_and_notify("o-1")
    assert RAN == ["o-1"]


def test_a_key_holds_for_a_call_that_has_no_span(store: IdempotencyStore) -> None:
    """Without a policy and without a dangerous label, too, as when traffic is sampled."""

    @tool(idempotency_key="order")
    def save(order: str) -> str:
        RAN.append(order)
        return order

    with capture_spans() as captured:
        keep(idempotency=store, provider=NoOpTracerProvider())
        settings.override_provider(None)
        assert save("o-1") == save("o-1") == "o-1"
    assert RAN == ["o-1"]
    assert not list(captured)


def test_a_label_that_the_policy_gives_protects_the_record(
    spans: CapturedSpans, tmp_path: Path
) -> None:
    log = audit.AuditLog(tmp_path / "audit.db", key=TEST_KEY)
    rules = "tools: {refund: {labels: [payment]}}, rules: [{id: r, effect: allow, tools: [refund]}]"
    keep(audit=log, policy=Policy.parse(f"{{version: 1, id: p, {rules}}}"))

    @tool
    def refund() -> None:
        RAN.append("refund")

    refund()
    log.close()
    with pytest.raises(AuditFailed):
        refund()
    assert RAN == ["refund"]


def test_arguments_that_change_while_the_record_is_made_stop_the_call(
    spans: CapturedSpans, store: IdempotencyStore
) -> None:
    order: dict[str, Any] = {"id": "o-1", "amount": 5.0}

    def order_id(arguments: Mapping[str, Any]) -> str:
        return str(arguments["order"]["id"])

    def reconcile(unknown: Unknown) -> Reconciled:
        order["amount"] = 1_000_000.0
        return Reconciled("failed_no_effect")

    keep(idempotency=store)

    @tool(labels=["payment"], idempotency_key=order_id, reconcile=reconcile)
    def pay_order(order: dict[str, Any]) -> None:
        RAN.append(order["id"])
        raise ToolTimeout("late")

    with pytest.raises(ToolTimeout):
        pay_order(order)
    with pytest.raises(ToolDenied) as denied:
        pay_order(order)
    assert denied.value.reason_code == "args_changed"
    assert RAN == ["o-1"]
    order["amount"] = 5.0
    with pytest.raises(ToolTimeout):  # the key was given back: nothing had run
        pay_order(order)


def test_a_read_goes_on_without_its_keys(spans: CapturedSpans, store: IdempotencyStore) -> None:
    keep(idempotency=store)
    store.close()

    @tool(labels=["read"], idempotency_key="order")
    def look(order: str) -> str:
        return order

    assert look("o-1") == "o-1"
    with pytest.raises(StoreError):
        pay("o-1", 5.0)
    assert RAN == []


def test_keys_of_a_scope_belong_to_the_customer_of_the_session(
    spans: CapturedSpans, tmp_path: Path
) -> None:
    """What one customer's call gave is not given to another."""
    with IdempotencyStore(tmp_path / "scoped.db", scope="customer_id") as scoped:
        keep(idempotency=scoped)
        for customer in ("ann", "bob", "ann"):
            with trajectory(session={"customer_id": customer}):
                pay("o-1", 5.0)
        assert RAN == ["o-1", "o-1"]
        with trajectory(), pytest.raises(StoreError):
            pay("o-1", 5.0)

        @tool(labels=["read"], idempotency_key="order")
        def look(order: str) -> str:
            return order

        assert look("o-1") == "o-1"


def test_a_key_that_no_store_remembers_is_warned_about_once_for_a_tool(
    caplog: pytest.LogCaptureFixture, spans: CapturedSpans
) -> None:
    @tool(labels=["payment"], idempotency_key="order_id")
    def refund(order_id: str) -> str:
        return order_id

    @tool(labels=["payment"], idempotency_key="order_id")
    def charge(order_id: str) -> str:
        return order_id

    @tool(idempotency_key="order_id")
    def look(order_id: str) -> str:
        return order_id

    for function in (refund, charge, look, refund):
        function("o-1")
    warned = [record.getMessage() for record in caplog.records]
    assert [text.split()[1] for text in warned] == ["refund", "charge"]
    assert all("configure(idempotency=...)" in text for text in warned)


def test_what_stands_in_the_way_is_named_with_the_command_to_look_at_it(
    store: IdempotencyStore, spans: CapturedSpans
) -> None:
    @tool(name="pay out", labels=["payment"], idempotency_key="order_id")
    def pay(order_id: str) -> None:
        with pytest.raises(CallInProgress, match=r"\(hmac-sha256:[0-9a-f]{64}\)"):
            pay(order_id)
        raise ToolTimeout

    keep(idempotency=store)
    with pytest.raises(ToolTimeout):
        pay("o-1")
    (key,) = store.keys()
    command = (
        f"toolverdict keys resolve {key.key_hash} --tool 'pay out' --found succeeded --db FILE (or "
    )
    with pytest.raises(OutcomeUnknown) as unknown:
        pay("o-1")
    assert command in str(unknown.value)
