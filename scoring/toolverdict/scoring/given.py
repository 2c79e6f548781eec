"""What was given to the model, request by request: answers to calls, decisions, texts."""

from collections.abc import Iterable
from dataclasses import replace

from toolverdict.scoring.dialects.messages import Answer, Asked, Item, Said, items
from toolverdict.scoring.model import Json
from toolverdict.scoring.part import Part, answer_key, history_key

_MAX_TEXTS = 10_000
_FED_BACK = ("Observation:", "Observation\n")


class Given:
    """Messages given to the model, read request by request; what was already read is passed over."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._before: list[Json] = []
        self._counts: dict[str, int] = {}
        self._last: Asked | None = None
        # Since the last call that was asked for: answers, and where they are kept.
        self._latest: dict[tuple[str | None, str | None], list[tuple[str, int]]] = {}
        self._tools: dict[str | None, str] = {}

    def read(self, messages: Json, *, keep_history: bool) -> None:
        """Add the answers, decisions and texts of one request's messages.

        Args:
            messages: decoded messages, or items that were read already.
            keep_history: these are of the first request, so that their calls are older than it.
        """
        part = self._part
        if isinstance(messages, list) and messages and isinstance(messages[0], Item):
            found: Iterable[Item] = messages
        else:
            found = items(self._new(messages), generated=False)
        for item in found:
            if isinstance(item, Said):
                say(part.said, item)
            elif isinstance(item, Asked):
                self._last = item
                self._latest.clear()
                self._tools[item.call_id] = item.tool
                if keep_history:
                    part.history.append(history_key(item))
            elif isinstance(item, Answer):
                self._keep(item)
            else:
                if item.call_id is None and self._last is not None:
                    item = replace(item, call_id=self._last.call_id)
                part.decisions.append((0, item))

    def _keep(self, answer: Answer) -> None:
        """Add an answer, unless it is the one before in another form: then what that adds."""
        part = self._part
        latest = self._latest.setdefault((answer.call_id, answer.tool), [])
        same = [place for place in latest if part.answers[place].result == answer.result]
        for place in same:
            kept = part.answers[place]
            part.answers[place] = replace(kept, signs=kept.signs + answer.signs)
        if same:
            return
        keys = [answer_key(answer.call_id, answer.tool)]
        tool = answer.tool or self._tools.get(answer.call_id)
        if answer.call_id is not None and tool is not None:
            keys.append(f"named {tool}")
        for key in keys:
            count = self._counts.get(key, 0)
            self._counts[key] = count + 1
            part.answers.setdefault((key, count), answer)
            latest.append((key, count))

    def read_texts(self, found: Iterable[Item]) -> None:
        """Add texts only."""
        for item in found:
            if isinstance(item, Said):
                say(self._part.said, item)

    def _new(self, messages: Json) -> Json:
        """The messages that follow those of the request before; all, where they do not repeat it."""
        if not isinstance(messages, list):
            self._counts.clear()
            self._before = []
            return messages
        known = len(self._before)
        before, self._before = self._before, messages
        if known and messages[:known] == before:
            return messages[known:]
        self._counts.clear()
        return messages


def say(said: dict[str, dict[str, None]], item: Said) -> None:
    """Keep a text with its role; what a tool said and a framework passes on as the user is nobody's.

    Trusted text decides whether a value may come from elsewhere: a tool must not get in there.
    """
    if item.text.startswith(_FED_BACK):
        return
    spoken_texts = said.setdefault(item.role, {})
    if len(spoken_texts) < _MAX_TEXTS:
        spoken_texts[item.text] = None
