"""The tools of a server, what is known of each, and which of them came after labels were given.

A server may add a tool later, or give one another name, and what was said of its tools says nothing
of that one. Where labels were given, such a tool counts as one that writes: under a policy it runs
only if a rule allows it. Giving it labels, even none (``{"name": []}``), says that it is known.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.options import Options
from toolverdict.instrument.outcomes import Outcome, OutcomeHook
from toolverdict.instrument.tools import ToolSpec

_UNKNOWN_CAN: Final = ("write",)
"""What a tool can do of which nothing is known."""

JudgedBy = Callable[[OutcomeHook | None, object], Outcome | None]
"""The outcome of a result, as the author's hook (None if there is none) and the framework say."""


class KnownTools:
    """What is known about tools by name; worked out when they are called first.

    Args:
        options: What is said about tools.
        outcome: Judges results.
        prefix: Put before the names of the tools.
    """

    def __init__(self, options: Options, outcome: JudgedBy, prefix: str = "") -> None:
        self._options = options
        self._outcome = outcome
        self._prefix = prefix
        self._specs: dict[str, tuple[object, ToolSpec]] = {}
        self._names: set[str] = set()
        self.all_listed = False
        """Whether all tools were listed once; a name that was not there then is new."""

    def listed(self, names: Iterable[str], *, complete: bool = True) -> None:
        """Look, once all tools were listed, whether each name that something is said of is there."""
        if self.all_listed:
            return
        self._names.update(names)
        if complete:
            self.all_listed = True
            self._options.remark(self._names)

    def spec(
        self,
        name: str,
        schema: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> ToolSpec:
        """What is known about one tool.

        Args:
            name: The name that the server knows it by.
            schema: The JSON schema of its arguments, None when unknown.
            names: What its code calls the arguments that a model may give by another name.

        Raises:
            TypeError: A setting does not fit the tool.
            ValueError: The name or a label is not usable.
        """
        is_new, known = self._is_new(name), self._specs.get(name)
        key = (is_new, schema)
        if known is None or known[0] != key:
            spec = self._options.spec(name, schema, names)
            if is_new:
                message = "tool %r came after labels were given; it counts as one that writes"
                guard.note("adapter", message, name)
                spec = replace(spec, labels=_UNKNOWN_CAN)
            hook = partial(self._outcome, spec.outcome_hook)
            known = key, replace(spec, name=self._prefix + name, outcome_hook=hook)
            self._specs[name] = known
        return known[1]

    def _is_new(self, name: str) -> bool:
        labels = self._options.labels
        if not labels or not self.all_listed:
            return False
        return name not in self._names and name not in labels
