"""YAML that people write by hand: strict, and able to say on which line a thing stands.

Used for policy and case files. Only what JSON can hold is read: a date stays the text it is, as it
would in JSON. A key that occurs twice is refused, since YAML would keep the last in silence, which
in a policy is a lost rule.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml


class YamlProblem(ValueError):
    """The text is not such YAML.

    Args:
        problem: What is wrong.
        line: On which line, from 1; None when it is not one line's fault.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem = problem
        self.line = line


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The data of a text, and the nodes it was made of, which know their lines."""

    data: Any
    root: yaml.Node | None

    def place(self, path: Sequence[int | str]) -> str:
        """Where a key path is in the text: ``line 4, rules.0.effect``."""
        line: int | None = None
        node = self.root
        for part in path:
            if node is not None:
                line = node.start_mark.line + 1
            child: yaml.Node | None = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == part:
                        line = key.start_mark.line + 1
                        child = value
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                child = node.value[part] if part < len(node.value) else None
                line = child.start_mark.line + 1 if child is not None else line
            node = child
        keys = ".".join(str(part) for part in path)
        return ", ".join(part for part in (f"line {line}" if line else "", keys) if part)


def read_yaml(content: str | bytes) -> YamlDocument:
    """Reads one document.

    Raises:
        YamlProblem: The text is not YAML, repeats a key, or holds several documents.
    """
    try:
        return _read(content)
    except YamlProblem:
        raise
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise YamlProblem(f"is not YAML: {error.problem}", line) from error
    except RecursionError as error:
        raise YamlProblem("is not YAML: nested too deep") from error
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is "!!int x"
        raise YamlProblem(f"is not YAML: {type(error).__name__}") from error


def _read(content: str | bytes) -> YamlDocument:
    loader = _Loader(content)
    try:
        root = loader.get_single_node()
        if root is None:
            return YamlDocument(None, None)
        _refuse_duplicate_keys(root)
        return YamlDocument(loader.construct_document(root), root)
    finally:
        loader.dispose()


def _refuse_duplicate_keys(root: yaml.Node) -> None:
    waiting = [root]
    done: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in done:
            continue
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[Hashable] = set()
            for key, value in node.value:
                if isinstance(key.value, str):
                    if key.value in seen:
                        problem = f"the key {key.value!r} occurs twice"
                        raise YamlProblem(problem, key.start_mark.line + 1)
                    seen.add(key.value)
                waiting.append(value)
