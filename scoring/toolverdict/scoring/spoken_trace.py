"""The spans of one trace with their dialects and roles, told once, and what they inherit."""

from collections.abc import Iterable

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.spans import Span, Tree
from toolverdict.scoring.spoken import agent_of_run, is_ours, read_text, role_of, spoken


class SpokenTrace:
    """A trace as its dialects tell it.

    Attributes:
        tree: the spans and how they lie in each other.
        spoken: the dialects spoken on each span, by its id.
        roles: what each span is; None where no dialect can say.
        hosts: the requests to a model in whose spans tools ran.
        runs: the agent of each span's run, where the span itself says so.
        agents, models, users: of each span, its own or inherited.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self.tree = Tree(spans)
        self.spoken: dict[str, tuple[Dialect, ...]] = {}
        self.roles: dict[str, Role | None] = {}
        for span in self.tree.spans:
            dialects = self.spoken[span.span_id] = spoken(span)
            self.roles[span.span_id] = role_of(span, dialects)
        for span in self.tree.spans:
            # Inside one of our own attempts a span without an operation only shows that it ran.
            parent = self.tree.parent(span)
            if (
                self.roles[span.span_id] is Role.TOOL
                and semconv.GEN_AI_OPERATION_NAME not in span.attributes
                and parent is not None
                and is_ours(parent)
                and not is_ours(span)
                and len(self.spoken[span.span_id]) == 1
            ):
                self.roles[span.span_id] = Role.OTHER
        self.hosts = self._hosts()
        self.runs: dict[str, str | None] = {}
        self.agents = self._agents()
        self.models = self._inherited("model")
        self.users = self._inherited("user")

    def _inherited(self, name: str) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        for span in self.tree.top_down:
            own = read_text(span, self.spoken[span.span_id], name)
            values[span.span_id] = own or values.get(span.parent_span_id or "")
        return values

    def _hosts(self) -> set[str]:
        """The requests to a model in whose spans tools ran."""
        hosts: set[str] = set()
        nearest: dict[str, str | None] = {}
        for span in self.tree.top_down:
            outer = nearest.get(span.parent_span_id or "")
            role = self.roles[span.span_id]
            if role is Role.TOOL and outer is not None:
                hosts.add(outer)
            if role is Role.MODEL:
                outer = span.span_id
            elif role is Role.AGENT:
                outer = None
            nearest[span.span_id] = outer
        return hosts

    def _agents(self) -> dict[str, str | None]:
        """The agent of each span: the run it lies in, else what it says itself.

        The run is asked first: some emitters write a constant on every other span.
        """
        running: dict[str, str | None] = {}
        named: dict[str, str | None] = {}
        for span in self.tree.top_down:
            parent = span.parent_span_id or ""
            own = read_text(span, self.spoken[span.span_id], "agent")
            run = own if self.roles[span.span_id] is Role.AGENT else None
            running[span.span_id] = run or running.get(parent)
            run = self.runs[span.span_id] = agent_of_run(span, self.spoken[span.span_id])
            named[span.span_id] = run or running[span.span_id] or own or named.get(parent)
        return named
