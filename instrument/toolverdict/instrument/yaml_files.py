"""YAML that people write by hand: strict, and able to say on which line a thing stands.

Used for policy and case files. Only what JSON can hold is read: text, numbers, true, false, null,
lists, and objects with text for keys, of at most 1,024 characters as they are written (YAML's own
limit); a date stays the text it is, as it would in JSON. A key that occurs twice is refused, since
YAML would keep the last in silence, which in a policy is a lost rule. A file is not trusted to be
small in memory because it is small on disk: depth is bounded, and so is what aliases (``*name``)
repeat. The size of the text is bounded by whoever reads it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

MAX_DEPTH: Final = 64
MAX_ALIASED: Final = 100_000
"""How many values the aliases of one document may stand for."""

MAX_NUMBER_CHARS: Final = 400
_MAX_INT_BITS: Final = 1023  # what is larger is no number to whoever calculates with it
_TAG: Final = "tag:yaml.org,2002:"
_NOT_RESOLVED: Final = {_TAG + name for name in ("timestamp", "value")}


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

    def __str__(self) -> str:
        """One line: where, and what is wrong."""
        return f"line {self.line}: {self.problem}" if self.line else self.problem


class _Loader(yaml.SafeLoader):
    """SafeLoader without dates, and with an end to its depth; counts the nodes that it makes."""

    def __init__(self, content: str | bytes) -> None:
        self.nodes = 0
        self._depth = 0
        super().__init__(content)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.nodes += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_RESOLVED]
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
        YamlProblem: The text is not YAML, holds what JSON cannot, repeats a key, or holds several
            documents.
    """
    try:
        loader = _Loader(content)
        try:
            root = loader.get_single_node()
            if root is None:
                return YamlDocument(None, None)
            return YamlDocument(_Builder(loader).build(root, 0), root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlProblem(f"is not YAML: {said}", line) from error
    except yaml.reader.ReaderError as error:
        raise YamlProblem(f"is not YAML: {error.reason}", _line_of(content, error)) from error


class _Builder:
    """Makes data of nodes; what an alias stands for is made anew wherever it stands."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._left = loader.nodes + MAX_ALIASED
        self._path: set[int] = set()

    def build(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            problem = f"aliases stand for more than {MAX_ALIASED} values"
            raise YamlProblem(problem, _line(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._path:
            raise YamlProblem("an alias stands for something that holds it", _line(node))
        if depth >= MAX_DEPTH:
            raise _too_deep(node.start_mark)
        self._path.add(id(node))
        data = (
            self._object(node, depth + 1)
            if isinstance(node, yaml.MappingNode)
            else self._list(node, depth + 1)
        )
        self._path.discard(id(node))
        return data

    def _object(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        _expect(node, "map")
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in data:
                raise YamlProblem(f"the key {key!r} occurs twice", _line(key_node))
            data[key] = self.build(value_node, depth)
        return data

    def _list(self, node: yaml.Node, depth: int) -> list[Any]:
        _expect(node, "seq")
        return [self.build(item, depth) for item in node.value]

    def _key(self, node: yaml.Node) -> str:
        if node.tag == _TAG + "merge":
            raise YamlProblem("merging with << is not read; write the keys out", _line(node))
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TAG + "str":
            shown = f" {node.value!r}" if isinstance(node, yaml.ScalarNode) else ""
            raise YamlProblem(f"the key{shown} is no text; put it in quotes", _line(node))
        return _text(node)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind = _expect(node, "str", "int", "float", "bool", "null")
        if kind == "str":
            return _text(node)
        if len(node.value) > MAX_NUMBER_CHARS:
            problem = f"{node.value[:40]!r}... is longer than {MAX_NUMBER_CHARS} characters"
            raise YamlProblem(problem, _line(node))
        try:
            # The loader's own conversions of yes, 0x1F, 1_000 and the like.
            data = self._loader.construct_object(node)
        except (ValueError, KeyError, IndexError):
            problem = f"is not YAML: {node.value[:40]!r} is no {kind}"
            raise YamlProblem(problem, _line(node)) from None
        if isinstance(data, int) and data.bit_length() > _MAX_INT_BITS:
            raise YamlProblem(f"{node.value[:40]}... is too large a number", _line(node))
        if isinstance(data, float) and not math.isfinite(data):
            raise YamlProblem(f"{node.value!r} is no number that JSON can hold", _line(node))
        return data


def _expect(node: yaml.Node, *kinds: str) -> str:
    kind = node.tag.removeprefix(_TAG)
    if kind not in kinds:
        raise YamlProblem(f"is not YAML that JSON can hold: tag {node.tag!r}", _line(node))
    return kind


def _text(node: yaml.ScalarNode) -> str:
    text: str = node.value
    if text.isascii():
        return text
    try:
        # Two escapes may be one character, as in JSON; one alone is none.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise YamlProblem("half a character: a lone surrogate", _line(node)) from None


def _too_deep(mark: yaml.Mark) -> YamlProblem:
    return YamlProblem(f"is not YAML: nested more than {MAX_DEPTH} deep", mark.line + 1)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _line_of(content: str | bytes, error: yaml.reader.ReaderError) -> int | None:
    newline = "\n" if isinstance(content, str) else b"\n"
    before = content[: error.position]
    return before.count(newline) + 1  # type: ignore[arg-type]
