"""What ``{$ref: order.result.id}`` stands for in one trajectory, and what ids were seen there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolverdict.scoring.cases.comparators.base import Context, Unlike, undecided
from toolverdict.scoring.cases.comparators.references import follow, parse_ref
from toolverdict.scoring.cases.model import Expectation
from toolverdict.scoring.model import Captured, Json, Placed
from toolverdict.scoring.values import parse

_MOST_RESULTS = 50  # of the calls just before: bounds the work on hostile traces


@dataclass(frozen=True)
class Answers:
    """All calls of the trajectory, and by the id of an expectation the call that answers it."""

    calls: Sequence[Placed] = ()
    by_id: Mapping[str, Placed] = field(default_factory=dict)

    @classmethod
    def of(
        cls, expected: Sequence[Expectation], answering: Mapping[int, int], calls: Sequence[Placed]
    ) -> "Answers":
        """What is known once each expectation (by index) is answered by a call (by its index).

        ``calls`` are all calls of the trajectory, each at its own index.
        """
        names = {index: expected[index].id for index in answering}
        return cls(calls, {n: calls[answering[i]] for i, n in names.items() if n is not None})

    def context(self, place: Placed) -> Context:
        """What the comparators of a call's arguments may look at."""
        resolve = self._resolve if self.by_id else None
        return Context(earlier=lambda: self._results_before(place), resolve=resolve)

    def _results_before(self, place: Placed) -> list[Json]:
        return [
            call.call.result
            for call in self.calls[max(0, place.index - _MOST_RESULTS) :]
            if call.index < place.index and call.call.result_state is Captured.CAPTURED
        ]

    def _resolve(self, text: str) -> Json | Unlike:
        name, path = parse_ref(text)
        place = self.by_id.get(name)
        if place is None:
            return undecided(f"refers to {name}, which no call answers")
        if place.call.result_state is not Captured.CAPTURED:
            return undecided(f"refers to {name}, whose result was not captured")
        result = place.call.result
        return follow(parse(result) if isinstance(result, str) else result, path, text)
