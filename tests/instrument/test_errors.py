import pickle

import pytest

from toolverdict.instrument import errors

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "PolicyError": ("policy.yaml", "line 3", "is not YAML"),
    "Unhashable": ("too_deep", "list"),
    "ToolDenied": ("refund", "rule", ("never",), "no refunds"),
    "ApprovalRequired": ("refund", "appr_1", ("ask",), "ask a human"),
}


def every_class(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(found for child in root.__subclasses__() for found in every_class(child))]


CLASSES = [*every_class(errors.ToolverdictError), *every_class(errors.ToolError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[Exception]) -> None:
    """An error crosses a process pool with its attributes and its text."""
    error = kind(*ARGUMENTS.get(kind.__name__, ("what, where, what to do",)))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_messages_say_what_and_why() -> None:
    denied = errors.ToolDenied("delete_user", "rule", ["never-delete"], "users stay")
    assert str(denied) == "tool 'delete_user' was denied by never-delete (rule): users stay"
    assert denied.rule_ids == ("never-delete",)
    waiting = errors.ApprovalRequired("refund", "appr_1", ["ask"])
    assert str(waiting) == "tool 'refund' needs approval appr_1, asked for by ask"
    assert str(errors.PolicyError("p.yaml", "line 2", "no")) == "p.yaml: line 2: no"
    assert str(errors.Unhashable("cycle")) == "cycle"


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InvalidArguments, ValueError),
        (errors.PermissionDenied, PermissionError),
        (errors.ToolTimeout, TimeoutError),
    ],
)
def test_authors_errors_are_caught_as_their_builtin_kin(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)
    assert issubclass(kind, errors.ToolError)
