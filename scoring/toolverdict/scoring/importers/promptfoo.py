"""promptfoo: trajectory assertions of its tests (``promptfooconfig.yaml``).

Read are ``trajectory:tool-used``, ``tool-set``, ``tool-sequence``, ``tool-args-match`` and
``step-count`` of tools, ``tool-call-f1`` where it asks for everything, and what ``not-`` forbids. Of a test, these become one case: further calls are allowed unless a sequence is ``exact``,
and only a sequence is in order.

Source: https://github.com/promptfoo/promptfoo, ``src/assertions/trajectory.ts``.
"""

import re
from collections.abc import Iterator
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node
from toolverdict.scoring.importers.promptfoo_case import CaseInMaking

_NOT = "not-"
_VARIABLE = re.compile(r"{{\s*(\w+)\s*}}")


def read_promptfoo(document: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    """The cases of a document: one for each test that says something about tool calls."""
    shared: list[Node] = []
    variables: dict[str, Any] = {}
    prompts: list[Any] = []
    if isinstance(document.data, dict):
        default = document.get("defaultTest")
        if default is not None and isinstance(default.data, dict):
            shared, variables = _assertions(default), _variables(default)
        elif default is not None:
            losses.add(default.place, "a default test in another file is not read")
        given = document.get("prompts")
        prompts = [one.data for one in given.each()] if given is not None else []
        document = document.need("tests")
    if isinstance(document.data, str):
        raise document.error("names another file of tests; import that one")
    for test in document.items():
        if isinstance(test.data, str):
            losses.add(test.place, "tests in another file are not read")
            continue
        made = _case(test, shared, variables, prompts, losses)
        if made is None:
            losses.add(test.place, "asserts nothing about tool calls: no case was made")
        else:
            yield test.place, made


def _case(
    test: Node,
    shared: list[Node],
    variables: dict[str, Any],
    prompts: list[Any],
    losses: Losses,
) -> CaseDict | None:
    given = {**variables, **_variables(test)}
    making = CaseInMaking(losses)
    for assertion in [*shared, *_assertions(test)]:
        _add(making, assertion, given, losses)
    made = making.case()
    if made is None:
        return None
    case: CaseDict = {}
    described = test.get("description")
    if described is not None:
        case["id"] = described.text()
    asked = _asked(prompts, given)
    if asked is not None:
        case["input"] = asked
    elif given:
        losses.add(test.place, "the prompt is not read; the input is not carried over")
    return {**case, **made}


def _asked(prompts: list[Any], given: dict[str, Any]) -> str | None:
    """The one prompt with its variables filled in; without prompts, the one variable."""
    texts = [value for value in given.values() if isinstance(value, str)]
    if not prompts:
        return texts[0] if len(texts) == 1 else None
    if len(prompts) > 1 or not isinstance(prompts[0], str) or prompts[0].startswith("file://"):
        return None
    filled = _VARIABLE.sub(lambda found: str(given.get(found[1], found[0])), prompts[0])
    return None if _is_template(filled) else filled


def _assertions(test: Node) -> list[Node]:
    listed = test.get("assert")
    return list(listed.items()) if listed is not None else []


def _variables(test: Node) -> dict[str, Any]:
    given = test.get("vars")
    return given.object() if given is not None and isinstance(given.data, dict) else {}


def _add(making: CaseInMaking, assertion: Node, given: dict[str, Any], losses: Losses) -> None:
    """Adds what one assertion says of tool calls; anything else is noted."""
    if assertion.get("type") is None:
        losses.add(assertion.place, "an assertion without a type is not carried over")
        return
    kind = assertion.need("type").text()
    inverse, plain = kind.startswith(_NOT), kind.removeprefix(_NOT)
    if plain == "assert-set" and not inverse and assertion.get("threshold") is None:
        for inner in _assertions(assertion):
            _add(making, inner, given, losses)
        return
    add = {
        "trajectory:tool-used": making.tool_used,
        "trajectory:tool-set": making.tool_set,
        "trajectory:tool-sequence": making.sequence,
        "trajectory:tool-args-match": making.arguments,
        "trajectory:step-count": making.step_count,
        "tool-call-f1": making.exact_set,
    }.get(plain)
    threshold = assertion.get("threshold")
    partly = plain == "tool-call-f1" and threshold is not None and threshold.data != 1
    if add is None or partly:
        losses.add(assertion.place, f"{kind} is not carried over" + _why(plain, partly))
        return
    filled = _filled(assertion.need("value"), given)
    if _is_template(filled.data):
        losses.add(filled.place, f"{kind} with a template is not carried over")
        return
    if not add(filled, inverse):
        losses.add(assertion.place, f"this form of {kind} is not carried over")


def _why(plain: str, partly: bool) -> str:
    if partly:
        return " with a threshold"
    return ", it needs a judge" if plain == "trajectory:goal-success" else ""


def _filled(node: Node, given: dict[str, Any]) -> Node:
    """The value with variables in place of texts that are nothing but ``{{name}}``."""
    return Node(node.place, _fill(node.data, given))


def _fill(value: Any, given: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, given) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, given) for inner in value]
    if isinstance(value, str) and value.startswith("{{") and value.endswith("}}"):
        return given.get(value[2:-2].strip(), value)
    return value


def _is_template(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_template(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_is_template(inner) for inner in value)
    return isinstance(value, str) and ("{{" in value or "{%" in value)
