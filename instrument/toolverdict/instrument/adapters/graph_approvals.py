"""Approvals in a LangGraph graph: an answer is for the call that was shown, which then runs once.

LangGraph gives the answers of a task out in the order in which its code asks for them, and runs the
task from its start again after each. The calls of one ``ToolNode`` are one task and run side by
side, so that order means nothing, and a call that has run would run again.

So a note of what was asked is kept among the answers of the task, in front of the answer to it, and
goes to the checkpoint with them. It names the call by its id and the hash of its arguments, and
takes up what the call gave back. One question of a task is open at a time: whoever has to ask
meanwhile interrupts with that same question, and a call that was approved does not begin.

A tool of the same task may ask for something by itself, or run a graph that does. So an answer is
taken for ours only if ours is the question that the checkpoint says was shown, or if the answer
names the call.

The list of answers is LangGraph's own affair. Where it is not what it is in the versions that are
known, nobody is asked this way, and a call that needs an approval waits.
"""

import asyncio
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Self

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.calls import ModelCall, approval_id, granted, rejected
from toolverdict.instrument.approvals import Approval, ApprovalRequest

_SCRATCHPAD: Final = "__pregel_scratchpad"
_SEND: Final = "__pregel_send"
_RESUME: Final = "__resume__"
_NAMESPACE: Final = "checkpoint_ns"
_TASK_ID: Final = "__pregel_task_id"
_INTERRUPT: Final = "__interrupt__"

_NOTE: Final = "toolverdict"
"""The key by which a note is known among answers."""

_Note = dict[str, Any]

_lock: Final = threading.Lock()
_inside: ContextVar[tuple[int, ...]] = ContextVar("toolverdict-graph-calls", default=())
"""The notes of the calls whose bodies we are inside of."""


class GraphApproval:
    """The approval of one call, wherever it is made; a context manager around the call.

    Args:
        call_id: The id of the call in the model's request; None when no model made it.
        told: Makes a result of a text that the model is told in the place of one.
    """

    call: ModelCall | None = None
    """The call; it is told when it has run before."""

    def __init__(self, call_id: str | None, told: Callable[[str], Any]) -> None:
        self._call_id = call_id
        self._told = told
        self._note: _Note | None = None
        self._task: _Task | None = None
        self._ran = False

    def __enter__(self) -> Self:
        """Nothing is known yet."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Let others go on, whether the body ran or something else than this stopped the call."""
        if self._task is not None and self._note is not None:
            if not self._ran:
                self._note["state"] = "waiting"
            self._task.end(self._note)

    async def wait(self, request: ApprovalRequest) -> None:
        """Let approved calls of the same task end, or what they gave back would not be kept."""
        task = _Task.current()
        while task is not None and (running := task.running()):
            await asyncio.wait([asyncio.wrap_future(future) for future in running])

    def ask(self, request: ApprovalRequest) -> Approval | None:
        """The answer to this very request; else interrupts the graph. None where none runs."""
        task = _Task.current()
        if task is None:
            return None
        with _lock:
            note = task.find(self._call_id, request)
            if note is None or not note["answered"]:
                raise task.interruption(note or task.asked(self._call_id, request))
            task.pass_over_answer()
            if not _approves(task.answer(note), note):
                return rejected(request)
            if note["state"] == "waiting":
                if task.open_question() is not None:
                    raise task.interruption(note)
                task.begin(note)
                self._task = task
        self._note = note
        if self._has_run():
            self._give_back(note)
        return granted(request)

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the body, unless it has run."""
        if self._has_run():
            return self._result()
        with self._kept():
            return self._returned(body())

    async def run_async(self, body: Callable[[], Awaitable[Any]]) -> Any:
        """The same for a body that is awaited."""
        if self._has_run():
            return self._result()
        with self._kept():
            return self._returned(await body())

    def _has_run(self) -> bool:
        return self._note is not None and self._task is None

    def _returned(self, result: Any) -> Any:
        if self._note is not None:
            self._note.update(state="succeeded", result=result)
        return result

    def _result(self) -> Any:
        assert self._note is not None
        state = self._note["state"]
        if state == "succeeded":
            return self._note["result"]
        how = "it ran and failed" if state == "failed" else "it may have run"
        return self._told(f"error: {how}, and its approval was for one run")

    def _give_back(self, note: _Note) -> None:
        from toolverdict.instrument.stores.idempotency import Replay

        if self.call is not None:
            state = note["state"]
            self.call.replay = Replay(
                "succeeded" if state == "succeeded" else "failed_final", self._result()
            )

    @contextmanager
    def _kept(self) -> Iterator[None]:
        task, note = self._task, self._note
        if task is None or note is None:
            yield
            return
        self._ran = True
        token = _inside.set((*_inside.get(), id(note)))
        try:
            yield
        except Exception as error:
            # One that pauses by itself is run again, as LangGraph does it.
            note["state"] = "waiting" if _is_pause(error) else "failed"
            raise
        finally:
            _inside.reset(token)


class _Pass:
    """One run of a task's code from its start.

    Args:
        counter: LangGraph's counter of interrupts, which is new for every such run.
    """

    def __init__(self, counter: object) -> None:
        self.counter = counter
        self.asked: set[int] = set()
        self.claimed: set[int] = set()
        self.running: dict[int, Future[None]] = {}


_passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()


class _Task:
    """The task that runs, and what was asked and answered in it.

    Args:
        configurable: LangGraph's own part of the configuration.
        types: The module ``langgraph.types``.
        errors: The module ``langgraph.errors``.
    """

    def __init__(self, configurable: dict[str, Any], types: Any, errors: Any) -> None:
        self._scratchpad = configurable[_SCRATCHPAD]
        self._send = configurable[_SEND]
        self._namespace = configurable[_NAMESPACE]
        self._interrupt_id = types._interrupt_id
        self._types = types
        self._errors = errors
        self._entries: list[Any] = self._scratchpad.resume
        self._task_id = configurable[_TASK_ID]
        self._written = _pending_writes(self._scratchpad.get_null_resume)
        key, counter = self._scratchpad.get_null_resume, self._scratchpad.interrupt_counter
        with _lock:
            found = _passes.get(key)
            if found is None or found.counter is not counter:
                found = _passes[key] = _Pass(counter)
        self._pass = found

    @classmethod
    def current(cls) -> "_Task | None":
        """The one that we are in; None where no graph runs."""
        types, config = sys.modules.get("langgraph.types"), sys.modules.get("langgraph.config")
        errors = sys.modules.get("langgraph.errors")
        if types is None or config is None or errors is None:
            return None
        try:
            configurable = config.get_config()["configurable"]
            if _SCRATCHPAD not in configurable:
                return None
        except (KeyError, RuntimeError):
            return None
        try:
            return cls(configurable, types, errors)
        except (AttributeError, KeyError, TypeError) as error:
            guard.note(
                "langgraph",
                "a graph cannot be asked for approvals (%s); calls that need one wait",
                type(error).__name__,
            )
            return None

    def find(self, call_id: str | None, request: ApprovalRequest) -> _Note | None:
        """The note of a call, if it was asked about; of several alike, each takes its own."""
        self._take_answer()
        for note in self._notes():
            if note["state"] == "void":
                continue
            fits = note["call_id"] == call_id and note["tool"] == request.tool
            if fits and note["args_hash"] == request.args_hash and self._claim(note):
                return note
        return None

    def asked(self, call_id: str | None, request: ApprovalRequest) -> _Note:
        """The note of the question that is open; of this call's, if none is."""
        note = self.open_question()
        if note is None:
            shown = approval_id(request.call_id)
            note = {
                _NOTE: "asked",
                "tool": request.tool,
                "call_id": call_id,
                "args_hash": request.args_hash,
                "approval_id": shown,
                "question": _question(request, shown),
                "answered": False,
                "state": "waiting",
            }
            self._pass.asked.add(id(note))
            self._pass.claimed.add(id(note))
            self._entries.append(note)
            self._keep()
        return note

    def interruption(self, note: _Note) -> Exception:
        """What interrupts the graph with the open question."""
        shown = (self.open_question() or note)["question"]
        interrupt_id = self._interrupt_id(self._namespace, len(self._entries))
        made: Exception = self._errors.GraphInterrupt(
            (self._types.Interrupt(value=shown, id=interrupt_id),)
        )
        return made

    def answer(self, note: _Note) -> object:
        """The answer to a note."""
        place = next(i for i, entry in enumerate(self._entries) if entry is note)
        return self._entries[place + 1]

    def open_question(self) -> _Note | None:
        """The note that has no answer, if there is one; it is the last."""
        last = self._entries[-1] if self._entries else None
        if not _is_note(last):
            return None
        # An answer that looks like a note follows one.
        return last if any(note is last for note in self._notes()) else None

    def pass_over_answer(self) -> None:
        """Pass over a note and its answer, for interrupts of the tool's own that come after."""
        self._scratchpad.interrupt_counter()
        self._scratchpad.interrupt_counter()

    def begin(self, note: _Note) -> None:
        """Take note that an approved call begins."""
        note["state"] = "begun"
        self._pass.running[id(note)] = Future()
        self._keep()

    def end(self, note: _Note) -> None:
        """Take note that it has ended."""
        with _lock:
            future = self._pass.running.pop(id(note), None)
        if future is not None:
            future.set_result(None)

    def running(self) -> list[Future[None]]:
        """Approved calls of the task that run now, but for those that we are inside of."""
        inside = _inside.get()
        with _lock:
            return [future for key, future in self._pass.running.items() if key not in inside]

    def _take_answer(self) -> None:
        """See to it that what the graph was resumed with stands behind the question it is for."""
        notes = list(self._notes())
        if not notes or notes[-1]["answered"] or id(notes[-1]) in self._pass.asked:
            return
        note = notes[-1]
        if note is self.open_question():
            given = self._scratchpad.get_null_resume(False)
            if given is None or not self._is_for(given, note):
                return
            self._entries.append(self._scratchpad.get_null_resume(True))
            note["answered"] = True
        elif self._is_for(self.answer(note), note):
            note["answered"] = True
        else:
            note["state"] = "void"  # somebody else's answer took the place
        self._keep()

    def _is_for(self, answer: object, note: _Note) -> bool:
        """Whether an answer is one to this question: it was the one shown, or is named."""
        shown = [
            interrupt.value
            for task_id, channel, interrupts in self._written
            if task_id == self._task_id and channel == _INTERRUPT
            for interrupt in (interrupts if isinstance(interrupts, list | tuple) else ())
        ]
        return any(_names(said, note) for said in (answer, *shown))

    def _notes(self) -> Iterator[_Note]:
        entries = iter(self._entries)
        for entry in entries:
            if _is_note(entry):
                yield entry
                next(entries, None)

    def _claim(self, note: _Note) -> bool:
        if id(note) in self._pass.claimed:
            return False
        self._pass.claimed.add(id(note))
        return True

    def _keep(self) -> None:
        """Let the checkpoint have it, if the task is interrupted."""
        self._send([(_RESUME, self._entries)])


def _question(request: ApprovalRequest, shown: str) -> dict[str, Any]:
    """What a person is shown, in the words of ``HumanInTheLoopMiddleware``."""
    return {
        "action_requests": [
            {
                "name": request.tool,
                "args": dict(request.arguments),
                "description": request.reason,
            }
        ],
        "review_configs": [
            {"action_name": request.tool, "allowed_decisions": ["approve", "reject"]}
        ],
        "approval_id": shown,
        "args_hash": request.args_hash,
    }


def _pending_writes(get_null_resume: Any) -> list[tuple[str, str, Any]]:
    """What the checkpoint has of the step that runs; LangGraph shows it to nobody else.

    Raises:
        KeyError: It is not where it is in the versions that are known.
    """
    names = get_null_resume.__code__.co_freevars
    cells = dict(zip(names, get_null_resume.__closure__ or (), strict=True))
    return list(cells["pending_writes"].cell_contents)


def _names(said: object, note: _Note) -> bool:
    """Whether a question or an answer names the call of a note."""
    if not isinstance(said, dict):
        return False
    return all(said.get(name) == note[name] for name in ("approval_id", "args_hash"))


def _approves(answer: object, note: _Note) -> bool:
    """Whether an answer is a yes, and names no other call."""
    if not isinstance(answer, dict):
        return False
    if any(answer.get(name, note[name]) != note[name] for name in ("approval_id", "args_hash")):
        return False
    decisions = answer.get("decisions")
    if not isinstance(decisions, list) or len(decisions) != 1:
        return False
    return isinstance(decisions[0], dict) and decisions[0].get("type") == "approve"


def _is_note(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get(_NOTE) == "asked"


def _is_pause(error: Exception) -> bool:
    kind = getattr(sys.modules.get("langgraph.errors"), "GraphBubbleUp", None)
    return kind is not None and isinstance(error, kind)
