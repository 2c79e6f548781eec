"""An approval is for one action, given by somebody else, in time, and used up exactly once."""

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument import (
    ApprovalRequest,
    ApprovalRequired,
    ConfigurationError,
    ToolDenied,
    guard,
    tool,
    trajectory,
)
from toolverdict.instrument.errors import StoreError, TransitionRefused
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.stores.approvals import ApprovalRecord, ApprovalStore, action_digest
from toolverdict.instrument.stores.clocks import Clock
from toolverdict.instrument.stores.webhook import Webhook, signature
from toolverdict.instrument.testing import capture_spans

KEY = HashKey.of(b"k" * 32)
ASK = Policy.parse(
    "{version: 1, id: ask, rules: [{id: q, effect: require_approval, tools: ['*'], reason: big}]}"
)
REQUEST = ApprovalRequest(
    id="appr_x",
    tool="refund",
    arguments={"order_id": "o-1", "amount": 12},
    args_hash="hmac-sha256:aa",
    labels=("payment",),
    agent="bot",
    conversation_id="run-a",
    call_id="call_1",
    policy_id="p",
    policy_digest="sha256:p1",
    rule_ids=("q",),
    reason="big",
    schema_version="1",
    args_hash_key_id=KEY.id,
)


@dataclass
class FakeClock:
    wall: int = 1_800_000_000_000
    steady: int = 5_000_000
    boot: str | None = "boot-1"

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady, lambda: self.boot)

    def pass_(self, seconds: float) -> None:
        self.wall += int(seconds * 1000)
        self.steady += int(seconds * 1000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[ApprovalStore]:
    with ApprovalStore(tmp_path / "db", key=KEY, clock=clock.clock) as store:
        yield store


def raw(store: ApprovalStore, statement: str, *arguments: object) -> None:
    """What somebody with write access to the file does."""
    connection = sqlite3.connect(store._file.path)
    connection.execute("DROP TRIGGER IF EXISTS approval_way")
    connection.execute("DROP TRIGGER IF EXISTS approval_bound")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    with connection:
        connection.execute(statement, arguments)
    connection.close()


# --- the lifecycle -------------------------------------------------------------------------------
MOVES: dict[str, Callable[[ApprovalStore, ApprovalRecord], ApprovalRecord]] = {
    "approved": lambda store, record: store.approve(record.id, "ann"),
    "rejected": lambda store, record: store.reject(record.id, "ann"),
    "cancelled": lambda store, record: store.cancel(record.id),
    "consumed": lambda store, record: store.consume(record.id, action_digest=record.action_digest),
}
WAYS = {
    ("requested", "approved"),
    ("requested", "rejected"),
    ("requested", "cancelled"),
    ("approved", "consumed"),
}
ROADS = {
    "requested": (),
    "approved": ("approved",),
    "rejected": ("rejected",),
    "cancelled": ("cancelled",),
    "consumed": ("approved", "consumed"),
    "expired": (),
}


@pytest.mark.parametrize("to", MOVES)
@pytest.mark.parametrize("from_", ROADS)
def test_only_the_ways_of_the_lifecycle_exist(
    store: ApprovalStore, clock: FakeClock, from_: str, to: str
) -> None:
    record = store.request(REQUEST)
    for step in ROADS[from_]:
        record = MOVES[step](store, record)
    if from_ == "expired":
        clock.pass_(3600)
    if (from_, to) in WAYS:
        assert MOVES[to](store, record).status == to
    else:
        with pytest.raises(TransitionRefused):
            MOVES[to](store, record)
        after = store.get(record.id)
        assert after is not None
        assert after.status == from_
    # The table itself knows the ways, whoever writes to it.
    connection = sqlite3.connect(store._file.path)
    if from_ in ("consumed", "rejected", "cancelled", "expired"):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE approval SET status = 'approved'")
    connection.close()


def test_an_approval_says_everything_about_itself(store: ApprovalStore) -> None:
    record = store.request(REQUEST, tenant="t", env="prod")
    assert record.content["agent"] == "bot"
    assert record.content["subject"] == "run-a"
    assert (record.requester, record.max_uses, record.arguments) == ("bot", 1, None)
    store.approve(record.id, "ann", note="fine")
    used = store.consume(record.id, action_digest=record.action_digest, by="call_1")
    assert (used.decided_by, used.decided_kind, used.note) == ("ann", "human", "fine")
    assert (used.consumed_by, used.status, used.intact) == ("call_1", "consumed", True)
    assert json.loads(json.dumps(used.as_json()))["content"]["env"] == "prod"
    assert "o-1" not in json.dumps(used.as_json())
    assert store.list() == (used,)
    assert store.list("requested") == ()


def test_the_arguments_are_in_the_file_only_if_asked_for(
    store: ApprovalStore, tmp_path: Path
) -> None:
    store.request(REQUEST)
    assert not any(b"o-1" in path.read_bytes() for path in tmp_path.iterdir())
    record = store.request(replace(REQUEST, args_hash="hmac-sha256:bb"), store_arguments=True)
    assert record.arguments == '{"amount":12,"order_id":"o-1"}'
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


# --- what it is bound to -------------------------------------------------------------------------
OTHER_ACTIONS = {
    "arguments": {"args_hash": "hmac-sha256:bb"},
    "key": {"args_hash_key_id": "other"},
    "policy": {"policy_digest": "sha256:p2"},
    "schema": {"schema_version": "2"},
    "tool": {"tool": "transfer"},
    "agent": {"agent": "other-bot"},
    "run": {"conversation_id": "run-b"},
}


@pytest.mark.parametrize("change", OTHER_ACTIONS.values(), ids=OTHER_ACTIONS)
def test_an_approval_is_for_nothing_else(store: ApprovalStore, change: dict[str, Any]) -> None:
    """Edited arguments, another policy, another version, another run: each is a new request."""
    approved = store.approve(store.request(REQUEST).id, "ann")
    other = store.request(replace(REQUEST, **change))
    assert (other.id == approved.id, other.status) == (False, "requested")
    with pytest.raises(TransitionRefused, match="another action"):
        store.consume(approved.id, action_digest=other.action_digest)
    answer = store.approver()(replace(REQUEST, **change))
    assert answer.status == "requested"
    assert store.approver()(REQUEST).status == "approved"


def test_another_tenant_or_environment_is_another_action(store: ApprovalStore) -> None:
    store.approve(store.request(REQUEST, env="staging", tenant="a").id, "ann")
    assert store.approver(env="prod", tenant="a")(REQUEST).status == "requested"
    assert store.approver(env="staging", tenant="b")(REQUEST).status == "requested"
    assert store.approver(env="staging", tenant="a")(REQUEST).status == "approved"


@given(st.lists(st.text(max_size=3), min_size=4, max_size=4), st.data())
def test_no_two_actions_have_one_digest(parts: list[str], data: st.DataObject) -> None:
    names = ("tenant", "env", "tool", "schema_version")
    others = data.draw(st.lists(st.text(max_size=3), min_size=4, max_size=4))
    fixed: dict[str, Any] = {
        "agent": None,
        "subject": None,
        "args_hash_key_id": "k",
        "policy_digest": "p",
    }

    def digest(values: list[str]) -> str:
        known: dict[str, Any] = dict(zip(names, values, strict=True))
        return action_digest(args_hash="h", **known, **fixed)

    assert (digest(parts) == digest(others)) is (parts == others)


def test_arguments_without_a_hash_cannot_be_approved(store: ApprovalStore) -> None:
    with pytest.raises(StoreError):
        store.request(replace(REQUEST, args_hash=""))


# --- asking twice --------------------------------------------------------------------------------
def test_the_same_request_is_asked_once(store: ApprovalStore, clock: FakeClock) -> None:
    first = store.request(REQUEST)
    assert store.request(replace(REQUEST, call_id="call_2", id="appr_y")).id == first.id
    store.reject(first.id, "ann", note="no")
    clock.pass_(600)
    again = store.request(REQUEST)
    assert (again.id, again.status, again.note) == (first.id, "rejected", "no")
    assert store.approver()(REQUEST).status == "rejected"
    with pytest.raises(TransitionRefused):
        store.approve(first.id, "bea")
    clock.pass_(3001)
    assert store.request(REQUEST).status == "requested"


def test_a_second_equal_call_needs_a_second_approval(store: ApprovalStore) -> None:
    store.approve(store.request(REQUEST).id, "ann")
    ask = store.approver()
    assert [ask(REQUEST).status, ask(REQUEST).status] == ["approved", "requested"]
    assert [record.status for record in store.list()] == ["consumed", "requested"]


# --- who decides ---------------------------------------------------------------------------------
@pytest.mark.parametrize("by", ["bot", "BOT", " bot ", "\uff42\uff4f\uff54", "run-a", "agent-7"])
def test_nobody_approves_themselves(store: ApprovalStore, by: str) -> None:
    record = store.request(REQUEST, requester="agent-7")
    for decide in (store.approve, store.reject):
        with pytest.raises(TransitionRefused, match="who asks"):
            decide(record.id, by)
    assert store.list()[0].status == "requested"


@pytest.mark.parametrize(
    "by",
    [
        *["bot\u200b", "\u200bbot", "b\u00adot", "bot\x00", "b\u043et", "\uff42ot", "bot\u0301"],
        *["b\u03bft", " BOT ", "bot\n", "\u202ebot", "bot\u00a0"],
    ],
)
def test_nobody_approves_themselves_under_a_name_that_looks_alike(
    store: ApprovalStore, by: str
) -> None:
    record = store.request(REQUEST)
    with pytest.raises((TransitionRefused, ConfigurationError)):
        store.approve(record.id, by)
    found = store.get(record.id)
    assert found is not None
    assert found.status == "requested"


@pytest.mark.parametrize("by", ["refund\u2011bot", "refund\u2010BOT", "r\u0435fund-b\u03bft"])
def test_nor_with_another_hyphen(store: ApprovalStore, by: str) -> None:
    record = store.request(replace(REQUEST, agent="refund-bot"))
    with pytest.raises(TransitionRefused, match="who asks"):
        store.approve(record.id, by)


@pytest.mark.parametrize("by", ["mallory", "\u0430lice@x.example"])
def test_whom_the_policy_does_not_name_cannot_approve(store: ApprovalStore, by: str) -> None:
    record = store.request(replace(REQUEST, approvers=frozenset({"alice@x.example"})))
    assert record.content["approvers"] == ["alice@x.example"]
    for decide in (store.approve, store.reject):
        with pytest.raises(TransitionRefused, match="may decide"):
            decide(record.id, by)
    assert store.approve(record.id, "Alice@X.example").status == "approved"


def test_an_approval_is_not_used_up_for_whom_it_does_not_count(store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    store.approve(record.id, "ann")
    with pytest.raises(TransitionRefused, match="may decide"):
        store.consume(record.id, action_digest=record.action_digest, approvers=["Bob"])
    approver = store.approver()
    asked = replace(REQUEST, approvers=frozenset({"bob"}))
    answer = approver(asked)
    assert answer.status != "approved"
    found = store.get(record.id)
    assert found is not None
    assert found.status == "approved"
    done = store.consume(record.id, action_digest=record.action_digest, approvers=["ANN"])
    assert done.status == "consumed"


def test_neither_case_nor_width_makes_another_approver() -> None:
    asked = replace(REQUEST, approvers=frozenset({"Ann"}))
    assert asked.may_be_approved_by("\uff21NN")
    assert not asked.may_be_approved_by("\u0430nn")
    assert not asked.may_be_approved_by(None)
    assert REQUEST.may_be_approved_by(None)


def test_what_is_long_over_is_forgotten_and_nothing_else(tmp_path: Path, clock: FakeClock) -> None:
    with ApprovalStore(
        tmp_path / "db", key=KEY, ttl_s=10, keep_s=100, rejection_holds_s=50, clock=clock.clock
    ) as store:
        old = store.request(REQUEST)
        store.reject(old.id, "ann")
        clock.pass_(700)
        store.request(replace(REQUEST, args_hash="new"))
        assert store.get(old.id) is None
        assert [record.status for record in store.list()] == ["requested"]
        assert store.prune() == 0


def test_a_list_keeps_nobody_from_writing_and_is_kept_by_nobody(
    store: ApprovalStore, tmp_path: Path, clock: FakeClock
) -> None:
    store.request(REQUEST)
    other = sqlite3.connect(store._file.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert [record.status for record in store.list()] == ["requested"]
    other.close()
    clock.pass_(4000)
    assert [record.status for record in store.list()] == ["expired"]
    clock.pass_(-4000)
    assert [record.status for record in store.list()] == ["expired"]


def test_a_request_is_told_again_if_who_told_it_died(
    store: ApprovalStore, clock: FakeClock
) -> None:
    class Dying(Webhook):
        def post(self, document: Any) -> bool:
            raise KeyboardInterrupt  # the end of the process, between claim and answer

    posts: list[Any] = []

    class Heard(Webhook):
        def post(self, document: Any) -> bool:
            posts.append(document)
            return True

    record = store.request(REQUEST)
    with pytest.raises(KeyboardInterrupt):
        store.tell(record, Dying("http://localhost/", b"s" * 16))
    heard = Heard("http://localhost/", b"s" * 16)
    assert not store.tell(record, heard)
    clock.pass_(61)
    assert store.tell(record, heard)
    clock.pass_(61)
    assert not store.tell(record, heard)
    assert len(posts) == 1


def test_the_table_knows_that_nobody_approves_themselves(store: ApprovalStore) -> None:
    store.request(REQUEST)
    connection = sqlite3.connect(store._file.path)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        connection.execute(
            "UPDATE approval SET status = 'approved', decided_by = 'BOT', decided_kind = 'human',"
            " decided_at = 1"
        )
    connection.close()


def test_what_a_model_says_never_counts(store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    advised = store.approve(record.id, "judge", kind="llm_advisory", note="looks fine")
    advised = store.reject(record.id, "judge-2", kind="llm_advisory")
    assert (advised.status, advised.decided_by, advised.intact) == ("requested", None, True)
    assert [dict(advice)["verdict"] for advice in advised.advice] == ["approved", "rejected"]
    assert store.approver()(REQUEST).status == "requested"
    assert store.approve(record.id, "rota", kind="service").decided_kind == "service"
    unknown: Any = "robot"
    with pytest.raises(ConfigurationError):
        store.approve(record.id, "x", kind=unknown)


def test_an_approver_who_was_removed_has_not_approved(tmp_path: Path) -> None:
    with ApprovalStore(tmp_path / "db", key=KEY, approvers=["Ann", "bea"]) as store:
        record = store.request(REQUEST)
        with pytest.raises(TransitionRefused, match="among"):
            store.approve(record.id, "eve")
        store.approve(record.id, "ann")
    with ApprovalStore(tmp_path / "db", key=KEY, approvers=["bea"]) as store:
        with pytest.raises(TransitionRefused):
            store.consume(record.id, action_digest=record.action_digest)
        assert store.approver()(REQUEST).status == "requested"
    again = ApprovalStore(tmp_path / "db", key=KEY, approvers=["ann", "bea"])
    with again, pytest.raises(TransitionRefused, match="expired"):
        again.consume(record.id, action_digest=record.action_digest)


def test_an_approval_is_of_what_was_seen(store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    other = store.request(replace(REQUEST, args_hash="hmac-sha256:bb"))
    with pytest.raises(TransitionRefused, match="seen"):
        store.approve(record.id, "ann", seen=other.presented_hash)
    assert store.approve(record.id, "ann", seen=record.presented_hash).status == "approved"


@pytest.mark.parametrize("by", ["", "  ", "x" * 5000, None])
def test_who_decides_has_a_name(store: ApprovalStore, by: Any) -> None:
    record = store.request(REQUEST)
    with pytest.raises(ConfigurationError):
        store.approve(record.id, by)


# --- time ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("approved", [False, True])
def test_it_expires_between_the_answer_and_its_use(
    store: ApprovalStore, clock: FakeClock, approved: bool
) -> None:
    record = store.request(REQUEST)
    if approved:
        store.approve(record.id, "ann")
    clock.pass_(3599.9)
    assert [found.status for found in store.list()] == ["approved" if approved else "requested"]
    clock.pass_(0.1)
    with pytest.raises(TransitionRefused, match="expired"):
        store.consume(record.id, action_digest=record.action_digest)
    assert [found.status for found in store.list("expired")] == ["expired"]
    assert store.request(REQUEST).id != record.id


def test_the_policy_may_want_less_time_than_the_store_and_never_more(
    store: ApprovalStore, clock: FakeClock
) -> None:
    short = store.approve(store.request(replace(REQUEST, ttl_s=60.0)).id, "ann")
    clock.pass_(60)
    with pytest.raises(TransitionRefused, match="expired"):
        store.consume(short.id, action_digest=short.action_digest)
    long = store.request(replace(REQUEST, ttl_s=1e6))
    clock.pass_(3600)
    with pytest.raises(TransitionRefused, match="expired"):
        store.approve(long.id, "ann")


def test_a_clock_that_goes_back_revives_nothing(store: ApprovalStore, clock: FakeClock) -> None:
    """Seen expired, it stays so; not seen, the clock that cannot be set knows."""
    record = store.approve(store.request(REQUEST).id, "ann")
    clock.steady += 3_600_000  # an hour went by, and the wall was held back all the while
    with pytest.raises(TransitionRefused, match="expired"):
        store.consume(record.id, action_digest=record.action_digest)


def test_once_expired_always_expired(store: ApprovalStore, clock: FakeClock) -> None:
    clock.boot = None
    record = store.approve(store.request(REQUEST).id, "ann")
    clock.wall += 3_600_000
    assert store.list()[0].status == "expired"
    clock.wall -= 3_600_000
    with pytest.raises(TransitionRefused, match="expired"):
        store.consume(record.id, action_digest=record.action_digest)


@pytest.mark.parametrize(("back_ms", "status"), [(1_500, "approved"), (2_001, "expired")])
def test_a_wall_earlier_than_the_approval_ends_it(
    store: ApprovalStore, clock: FakeClock, back_ms: int, status: str
) -> None:
    clock.boot = None
    record = store.request(REQUEST)
    clock.wall += 60_000
    store.approve(record.id, "ann")
    clock.wall -= back_ms
    assert store.list()[0].status == status


def test_after_a_reboot_the_wall_decides(store: ApprovalStore, clock: FakeClock) -> None:
    record = store.approve(store.request(REQUEST).id, "ann")
    clock.pass_(60)
    clock.boot, clock.steady = "boot-2", 1
    assert store.consume(record.id, action_digest=record.action_digest).status == "consumed"


# --- who can write to the file -------------------------------------------------------------------
def test_write_access_to_the_file_does_not_approve(store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    raw(
        store,
        "UPDATE approval SET status = 'approved', decided_by = 'ann', decided_kind = 'human',"
        " decided_at = created_at",
    )
    with pytest.raises(TransitionRefused, match="changed by somebody else"):
        store.consume(record.id, action_digest=record.action_digest)
    with pytest.raises(StoreError):
        store.approver()(REQUEST)
    with capture_spans(policy=ASK, approver=store.approver()), pytest.raises(ApprovalRequired):
        pay("ann")
    found = store.get(record.id)
    assert found is not None
    assert not found.intact


COLUMNS = {
    "content": "json_set(content, '$.tool', 'read_order')",
    "expires_at": "expires_at + 999999999",
    "touched_at": "0",
    "ends_steady": "ends_steady + 999999999",
    "boot": "'other'",
    "presented_hash": "'x'",
    "advice": "'not json'",
    "decided_by": "'bea'",
    "decided_kind": "'service'",
    "note": "'really'",
    "requester": "'nobody'",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_no_column_can_be_changed(store: ApprovalStore, column: str) -> None:
    record = store.approve(store.request(REQUEST).id, "ann")
    raw(store, f"UPDATE approval SET {column} = {COLUMNS[column]}")
    with pytest.raises(TransitionRefused):
        store.consume(record.id, action_digest=record.action_digest)


def test_an_approval_cannot_be_moved_to_another_request(store: ApprovalStore) -> None:
    approved = store.approve(store.request(REQUEST).id, "ann")
    wanted = store.request(replace(REQUEST, args_hash="hmac-sha256:bb"))
    raw(store, "DELETE FROM approval WHERE id = ?", wanted.id)
    raw(store, "UPDATE approval SET action_digest = ?", wanted.action_digest)
    with pytest.raises(TransitionRefused):
        store.consume(approved.id, action_digest=wanted.action_digest)


def test_another_key_knows_no_approval(store: ApprovalStore) -> None:
    record = store.approve(store.request(REQUEST).id, "ann")
    other = ApprovalStore(store._file.path, key=HashKey.of(b"o" * 32), clock=store._clock)
    with other, pytest.raises(TransitionRefused, match="another hash key"):
        other.consume(record.id, action_digest=record.action_digest)


def test_a_key_of_this_process_only_is_refused(tmp_path: Path) -> None:
    with ApprovalStore(tmp_path / "db") as store, pytest.raises(ConfigurationError, match="HASH"):
        store.request(REQUEST)


# --- the file ------------------------------------------------------------------------------------
def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    ApprovalStore(tmp_path / "db", key=KEY).close()
    connection = sqlite3.connect(tmp_path / "db")
    with connection:
        connection.execute("UPDATE toolverdict_schema SET version = 9")
    connection.close()
    with pytest.raises(StoreError, match="newer toolverdict"):
        ApprovalStore(tmp_path / "db", key=KEY)


@pytest.mark.parametrize("content", [None, b"not a database at all" * 100])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "folder"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(StoreError, match="folder"):
        ApprovalStore(path, key=KEY)
    with pytest.raises(StoreError):
        ApprovalStore(tmp_path / "none", key=KEY, create=False)
    assert not (tmp_path / "none").exists()


def test_a_database_that_cannot_be_used_approves_nothing(store: ApprovalStore) -> None:
    store.approve(store.request(REQUEST).id, "ann")
    approver = store.approver()
    raw(store, "DROP TABLE approval")
    ran.clear()
    with capture_spans(policy=ASK, approver=approver), pytest.raises(ApprovalRequired):
        pay("ann")
    store.close()
    with capture_spans(policy=ASK, approver=approver), pytest.raises(ApprovalRequired):
        pay("ann")
    assert ran == []
    assert guard.counts()["approver"] >= 1


def test_a_forked_process_opens_its_own_connection(store: ApprovalStore, tmp_path: Path) -> None:
    code = """
import os, sys
from toolverdict.instrument.stores.approvals import ApprovalStore
from toolverdict.instrument.errors import TransitionRefused
from toolverdict.instrument.hashing import HashKey
store = ApprovalStore(sys.argv[1], key=HashKey.of(b"k" * 32))
record = store.list("approved")[0]
child = os.fork()
if child == 0:
    used = store.consume(record.id, action_digest=record.action_digest)
    os._exit(7 if used.status == "consumed" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
try:
    store.consume(record.id, action_digest=record.action_digest)
except TransitionRefused:
    print("once")
"""
    with ApprovalStore(tmp_path / "forked", key=KEY) as other:
        other.approve(other.request(REQUEST).id, "ann")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "forked")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("once\n", "")


# --- many at once --------------------------------------------------------------------------------
RACE = """
import sys, time
from toolverdict.instrument.stores.approvals import ApprovalStore
from toolverdict.instrument.errors import TransitionRefused
from toolverdict.instrument.hashing import HashKey
store = ApprovalStore(sys.argv[1], key=HashKey.of(b"k" * 32))
records = store.list()
print("ready", flush=True)
sys.stdin.readline()
for record in records:
    try:
        store.consume(record.id, action_digest=record.action_digest)
        print(record.id)
    except TransitionRefused:
        pass
"""


def test_eight_processes_use_a_hundred_approvals_exactly_once(tmp_path: Path) -> None:
    with ApprovalStore(tmp_path / "db", key=KEY) as store:
        for number in range(100):
            store.approve(store.request(replace(REQUEST, args_hash=f"h{number}")).id, "ann")
        ids = sorted(record.id for record in store.list("approved"))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path / "db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    used = [one for process in processes for one in process.communicate(timeout=60)[0].split()]
    assert sorted(used) == ids
    with ApprovalStore(tmp_path / "db", key=KEY) as store:
        assert len(store.list("consumed")) == len(ids) == 100


def test_threads_asking_alike_share_one_request_and_one_approval(store: ApprovalStore) -> None:
    ask = store.approver(wait_s=10, poll_s=0.01)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, REQUEST) for _ in range(8)]
        for _ in range(400):
            if store.list():
                break
            time.sleep(0.005)
        store.approve(store.list()[0].id, "ann")
        for _ in range(200):
            for record in store.list("requested"):
                store.cancel(record.id)
            if all(answer.done() for answer in answers):
                break
            time.sleep(0.02)
        statuses = sorted(answer.result(20).status for answer in answers)
    assert statuses.count("approved") == 1
    assert set(statuses) <= {"approved", "expired", "cancelled"}


# --- as an approver ------------------------------------------------------------------------------
ran: list[Any] = []


@tool(labels=["payment"])
def pay(to: str) -> str:
    ran.append(to)
    return "paid"


@tool(labels=["payment"])
async def pay_async(to: str, lines: list[int] | None = None) -> str:
    ran.append(to)
    return "paid"


def test_a_call_waits_is_approved_and_runs_once(store: ApprovalStore) -> None:
    ran.clear()
    with (
        capture_spans(policy=ASK, approver=store.approver()) as spans,
        trajectory("bot", conversation_id="c1"),
    ):
        with pytest.raises(ApprovalRequired) as waiting:
            pay("ann")
        store.approve(waiting.value.approval_id, "bea")
        with pytest.raises(ApprovalRequired):
            pay("eve")
        assert pay("ann") == "paid"
        with pytest.raises(ApprovalRequired) as again:
            pay("ann")
        assert again.value.approval_id != waiting.value.approval_id
        store.reject(again.value.approval_id, "bea")
        with pytest.raises(ToolDenied):
            pay("ann")
    assert ran == ["ann"]
    seen = [(span.attributes or {})["approval.status"] for span in spans.tool_calls]
    assert seen == ["requested", "requested", "approved", "requested", "rejected"]


def test_an_approval_is_there_after_a_restart(tmp_path: Path) -> None:
    ran.clear()
    for step in ("ask", "answer", "run", "replay"):
        with ApprovalStore(tmp_path / "db", key=KEY) as store:
            if step == "answer":
                store.approve(store.list("requested")[0].id, "bea")
                continue
            with (
                capture_spans(policy=ASK, approver=store.approver(), hash_key=KEY),
                trajectory("bot", conversation_id="c1"),
            ):
                if step == "run":
                    pay("ann")
                else:
                    with pytest.raises(ApprovalRequired):
                        pay("ann")
    assert ran == ["ann"]


async def test_an_async_tool_waits_while_the_loop_goes_on(store: ApprovalStore) -> None:
    ran.clear()

    async def answer() -> None:
        for _ in range(400):
            if store.list("requested"):
                break
            await asyncio.sleep(0.005)
        store.approve(store.list("requested")[0].id, "bea")

    with capture_spans(policy=ASK, approver=store.approver(wait_s=10, poll_s=0.01)):
        _, result = await asyncio.gather(answer(), pay_async("ann"))
    assert (result, ran) == ("paid", ["ann"])


async def test_an_approval_is_not_for_arguments_changed_while_waiting(store: ApprovalStore) -> None:
    ran.clear()
    lines = [1]

    async def answer() -> None:
        for _ in range(400):
            if store.list("requested"):
                break
            await asyncio.sleep(0.005)
        lines.append(2)
        store.approve(store.list("requested")[0].id, "bea")

    with capture_spans(policy=ASK, approver=store.approver(wait_s=10, poll_s=0.01)):
        results = await asyncio.gather(answer(), pay_async("ann", lines), return_exceptions=True)
    assert isinstance(results[1], ToolDenied)
    assert ran == []
    assert [record.status for record in store.list()] == ["consumed"]


async def test_waiting_ends(store: ApprovalStore) -> None:
    ask = store.approver(wait_s=0.05, poll_s=0.01)
    assert (await ask.ask_async(REQUEST)).status == "requested"
    assert ask(REQUEST).status == "requested"
    store.cancel(store.list()[0].id)
    with pytest.raises(ConfigurationError):
        store.approver(poll_s=0)


# --- webhook -------------------------------------------------------------------------------------
class Receiver(ThreadingHTTPServer):
    status = 200
    delay_s = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.headers["X-Toolverdict-Signature"], body))
        time.sleep(self.server.delay_s)
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", self.server.url + "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


SECRET = b"s" * 16


def test_a_webhook_is_told_once_and_can_check_who_tells(
    store: ApprovalStore, receiver: Receiver
) -> None:
    ask = store.approver(webhook=Webhook(receiver.url, SECRET))
    assert [ask(REQUEST).status, ask(REQUEST).status] == ["requested"] * 2
    [(signed, body)] = receiver.got
    parts = dict(part.split("=") for part in signed.split(","))
    assert parts["v1"] == signature(SECRET, int(parts["t"]), body)
    document = json.loads(body)
    assert document["id"] == store.list()[0].id
    assert "o-1" not in body.decode()
    assert store.list()[0].asked


@pytest.mark.parametrize("status", [500, 302, 404])
def test_a_webhook_that_fails_has_not_asked_and_approves_nothing(
    store: ApprovalStore, receiver: Receiver, status: int
) -> None:
    receiver.status = status
    ask = store.approver(webhook=Webhook(receiver.url, SECRET))
    assert ask(REQUEST).status == "requested"
    assert len(receiver.got) == 1
    assert not store.list()[0].asked
    receiver.status = 204
    assert ask(REQUEST).status == "requested"
    assert store.list()[0].asked


async def test_a_webhook_takes_bounded_time(store: ApprovalStore, receiver: Receiver) -> None:
    receiver.delay_s = 1.0
    hook = Webhook(receiver.url, SECRET, timeout_s=0.1)
    began = time.monotonic()
    assert (await store.approver(webhook=hook).ask_async(REQUEST)).status == "requested"
    assert time.monotonic() - began < 0.9
    assert not store.list()[0].asked


@pytest.mark.parametrize(
    ("url", "secret", "timeout_s"),
    [
        ("file:///etc/passwd", SECRET, 1),
        ("ftp://h/x", SECRET, 1),
        ("http://", SECRET, 1),
        ("http://u:p@h/", SECRET, 1),
        ("http://[::1", SECRET, 1),
        ("http://h:99999/", SECRET, 1),
        ("http://h:x/", SECRET, 1),
        ("https://h/", b"short", 1),
        ("https://h/", SECRET, 0),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(url: str, secret: bytes, timeout_s: float) -> None:
    with pytest.raises(ConfigurationError):
        Webhook(url, secret, timeout_s)
