"""How each expected argument is compared, decided once: a tree of comparators.

The comparator of an argument is the one that the case names (``{$money: 120, currency: EUR}``), else
that of the tool's catalogue entry, else it is inferred, and a mismatch says so: ids exactly, instants
with a zone as instants, all else as equal JSON. Inferring never makes a comparison looser than the
meaning of the value.

In the catalogue a property of the tool's JSON Schema says how it compares: by ``x-comparator``
(a name, or ``{money: {tolerance: 0.01}}``), by ``enum``, or by ``format`` (``date-time``, ``date``,
``uri``, ``uuid``). Where it says number, a number in text is read as one, and that is reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from toolverdict.scoring.cases.comparators.base import (
    MISSING,
    Comparator,
    Context,
    Kind,
    Unlike,
    undecided,
)
from toolverdict.scoring.cases.comparators.identifiers import Id
from toolverdict.scoring.cases.comparators.registry import LIST, OPTIONAL, ComparatorError, make
from toolverdict.scoring.cases.comparators.times import Time, is_timestamp
from toolverdict.scoring.cases.equality import (
    MAX_DEPTH,
    below,
    difference,
    is_not,
    shown,
    wrong_length,
)
from toolverdict.scoring.model import Json, Measured

_LITERAL = frozenset({"$int", "$t"})
"""How captured arguments write what JSON cannot hold; no comparators."""
_FORMATS = {"date-time": "time", "date": "date", "uri": "url", "uuid": "id"}
_MAX_ITEMS = 2_000

Chosen = Literal["case", "catalogue", "inferred"]
EQUAL = "equal"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first place below one key that is not as expected.

    ``why`` reads on from the key path: ``items[0].sku`` + ``is missing``. ``undecided``: it may be
    right, and nothing shows whether it is. ``code`` names a mistake that has a name.
    """

    key_path: str
    expected: Json
    actual: Json
    why: str
    comparator: str = EQUAL
    chosen: Chosen = "inferred"
    undecided: bool = False
    code: str | None = None


class PlanError(ValueError):
    """An expected argument that cannot be compared with anything; ``path`` is where it stands."""

    def __init__(self, path: tuple[str | int, ...], problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal as JSON."""

    value: Json
    reads_numbers: bool = False


@dataclass(frozen=True, slots=True)
class Leaf:
    """Compared by a comparator."""

    comparator: Comparator
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class Object:
    """These keys and no others."""

    value: Mapping[str, Json]
    keys: "Mapping[str, Plan]"


@dataclass(frozen=True, slots=True)
class Items:
    """A list: in order or in any, with exactly, at least or at most these items."""

    value: Sequence[Json]
    items: "tuple[Plan, ...]"
    in_order: bool = True
    match: Literal["exactly", "at_least", "at_most"] = "exactly"
    chosen: Chosen = "inferred"


@dataclass(frozen=True, slots=True)
class Optional:
    """What an argument must be if it is there."""

    inner: "Plan"


Plan: TypeAlias = Constant | Leaf | Object | Items | Optional


def plan_of(
    value: Json,
    key: str = "",
    schema: Mapping[str, Any] | None = None,
    path: tuple[str | int, ...] = (),
) -> Plan:
    """How an expected value is compared.

    Args:
        value: what the case says.
        key: the key that it stands at, by which ids are known.
        schema: the JSON Schema of that key in the tool's catalogue entry, if there is one.
        path: where in the case it stands, for errors.

    Raises:
        PlanError: it names a comparator that does not exist, or is nested too deep.
    """
    if len(path) > MAX_DEPTH:
        raise PlanError(path, f"is nested deeper than {MAX_DEPTH} levels")
    schema = schema or {}
    if isinstance(value, dict):
        named = [name for name in value if name.startswith("$")]
        if named and named[0] not in _LITERAL:
            return _named(value, named, key, schema, path)
        known = schema.get("properties") or {}
        keys = {k: plan_of(v, k, _schema_of(known, k), (*path, k)) for k, v in value.items()}
        return _folded(Object(value, keys), value)
    if isinstance(value, list):
        of_items = schema.get("items")
        inner = of_items if isinstance(of_items, Mapping) else None
        items = tuple(plan_of(v, key, inner, (*path, i)) for i, v in enumerate(value))
        return _folded(Items(value, items), value)
    return _of_catalogue(value, schema) or _inferred(value, key, schema)


def compare(plan: Plan, actual: Json, path: str, context: Context) -> Mismatch | None:
    """The first place where an argument is not as expected: the first wrong, else undecided one."""
    if isinstance(plan, Constant):
        return _constant(plan, actual, path)
    doubtful: Mismatch | None = None
    for found in _mismatches(plan, actual, path, context):
        if not found.undecided:
            return found
        doubtful = doubtful or found
    return doubtful


def accepts_missing(plan: Plan) -> bool:
    """Whether an argument that is not there may be right."""
    return isinstance(plan, Optional) or (
        isinstance(plan, Leaf) and plan.comparator.accepts_missing
    )


def reads_as_number(plan: Plan, actual: Json) -> bool:
    """Whether a text was read as a number, since the tool's schema says that it is one."""
    if isinstance(plan, Optional):
        return reads_as_number(plan.inner, actual)
    return isinstance(plan, Constant) and plan.reads_numbers and _number(actual) is not None


def measured(plan: Plan, actual: Json, path: str) -> Iterator[Measured]:
    """How near to what is expected an argument is, wherever the comparator measures that."""
    if isinstance(plan, Leaf):
        found = plan.comparator.measure(actual) if isinstance(plan.comparator, Kind) else None
        if found is not None:
            yield Measured(path, plan.comparator.kind, *found)
    elif isinstance(plan, Optional):
        yield from measured(plan.inner, actual, path)
    elif isinstance(plan, Object) and isinstance(actual, Mapping):
        for key, inner in plan.keys.items():
            if key in actual:
                yield from measured(inner, actual[key], below(path, key))
    elif isinstance(plan, Items) and plan.in_order and isinstance(actual, list):
        for index, (inner, item) in enumerate(zip(plan.items, actual, strict=False)):
            yield from measured(inner, item, f"{path}[{index}]")


def leaves_of(plan: Plan) -> Iterator[Leaf]:
    """Every comparator in a plan."""
    if isinstance(plan, Leaf):
        yield plan
    elif isinstance(plan, Optional):
        yield from leaves_of(plan.inner)
    elif isinstance(plan, Object):
        for inner in plan.keys.values():
            yield from leaves_of(inner)
    elif isinstance(plan, Items):
        for inner in plan.items:
            yield from leaves_of(inner)


def _folded(plan: Object | Items, value: Json) -> Plan:
    """Plain equality of the whole where every part is plainly equal."""
    parts = plan.keys.values() if isinstance(plan, Object) else plan.items
    plainly = all(isinstance(part, Constant) and not part.reads_numbers for part in parts)
    return Constant(value) if plainly else plan


def _schema_of(properties: Json, key: str) -> Mapping[str, Any] | None:
    found = properties.get(key) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _named(
    value: dict[str, Json],
    named: list[str],
    key: str,
    schema: Mapping[str, Any],
    path: tuple[str | int, ...],
) -> Plan:
    if len(named) > 1:
        raise PlanError(path, f"names two comparators, {named[0]} and {named[1]}; give one")
    name = named[0].removeprefix("$")
    options = {key: inner for key, inner in value.items() if key != named[0]}
    try:
        if name == LIST:
            return _list(value[named[0]], options, (*path, named[0]))
        if name == OPTIONAL:
            if options:
                unknown = f"$optional: unknown option {min(options)!r}; it has none"
                raise PlanError(path, unknown)
            return Optional(plan_of(value[named[0]], key, schema, (*path, named[0])))
        return Leaf(make(name, value[named[0]], options), "case")
    except ComparatorError as error:
        raise PlanError(path, str(error)) from error


def _list(value: Json, options: dict[str, Json], path: tuple[str | int, ...]) -> Items:
    order, match = options.pop("order", "listed"), options.pop("match", "exactly")
    if not isinstance(value, list):
        raise PlanError(path, "expected a list after $list")
    if options:
        raise PlanError(path, f"$list: unknown option {min(options)!r}; it has order, match")
    if order not in ("listed", "any"):
        raise PlanError(path, "$list: order is listed or any")
    if match not in ("exactly", "at_least", "at_most"):
        raise PlanError(path, "$list: match is exactly, at_least or at_most")
    items = tuple(plan_of(item, path=(*path, i)) for i, item in enumerate(value))
    return Items(value, items, order == "listed", match, "case")


def _of_catalogue(value: Json, schema: Mapping[str, Any]) -> Plan | None:
    """The comparator that the tool's schema asks for; None where it asks for none that fits."""
    named = schema.get("x-comparator", _FORMATS.get(str(schema.get("format"))))
    options: Mapping[str, Any] = {}
    if isinstance(named, Mapping) and len(named) == 1:
        named, options = next(iter(named.items()))
    enum = schema.get("enum")
    if named is None and isinstance(enum, list) and value in enum:
        named, value = "enum", [value]
    if not isinstance(named, str) or not isinstance(options, Mapping):
        return None
    try:
        return Leaf(make(named, value, options), "catalogue")
    except ComparatorError:
        return None  # the value of this case is none that the catalogue's comparator takes


def _inferred(value: Json, key: str, schema: Mapping[str, Any]) -> Plan:
    if isinstance(value, str) and value and _is_id(key):
        return Leaf(Id(value=value), "inferred")
    if isinstance(value, str) and is_timestamp(value):
        return Leaf(Time(value=value), "inferred")
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Constant(value, numeric and schema.get("type") in ("number", "integer"))


def _is_id(key: str) -> bool:
    return key in ("id", "ID") or key.endswith(("_id", "Id", "ID"))


def _constant(plan: Constant, actual: Json, path: str) -> Mismatch | None:
    if plan.reads_numbers and (number := _number(actual)) is not None:
        actual = number
    found = difference(plan.value, actual, path)
    return None if found is None else Mismatch(*found)


def _number(value: Json) -> Json:
    """The number that a text is, as JSON writes it; None for any other value."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    for kind in (int, float):
        try:
            return kind(value) if value.strip("+-.eE0123456789") == "" else None
        except ValueError:
            continue
    return None


def _mismatches(plan: Plan, actual: Json, path: str, context: Context) -> Iterator[Mismatch]:
    if isinstance(plan, Constant):
        found = _constant(plan, actual, path)
        if found is not None:
            yield found
    elif isinstance(plan, Leaf):
        unlike = _asked(plan.comparator, actual, context)
        if unlike is not None:
            yield _mismatch(plan, unlike, actual, path)
    elif isinstance(plan, Optional):
        if actual is not MISSING:
            yield from _mismatches(plan.inner, actual, path, context)
    elif isinstance(plan, Object):
        if isinstance(actual, Mapping):
            yield from _keys(plan, actual, path, replace(context, siblings=actual))
        else:
            yield Mismatch(path, plan.value, actual, is_not(plan.value, actual))
    elif isinstance(actual, list) and len(actual) <= _MAX_ITEMS:
        yield from _items(plan, actual, path, context)
    else:
        why = f"has more than {_MAX_ITEMS} items" if isinstance(actual, list) else None
        why = why or is_not(plan.value, actual)
        yield Mismatch(path, plan.value, actual, why, LIST, plan.chosen)


def _asked(comparator: Comparator, actual: Json, context: Context) -> Unlike | None:
    if isinstance(comparator, Kind):
        return comparator.compare(actual, context)
    try:
        return comparator.compare(actual, context)
    except Exception as error:  # noqa: BLE001 - somebody else's code, on an argument from a trace
        why = f"cannot be compared: ${comparator.kind} raised {type(error).__name__}"
        return undecided(why)


def _mismatch(plan: Leaf, unlike: Unlike, actual: Json, path: str) -> Mismatch:
    comparator = plan.comparator
    separator = "." if unlike.path and not unlike.path.startswith(("[", ".")) else ""
    return Mismatch(
        f"{path}{separator}{unlike.path}",
        comparator.expected,
        None if unlike.secret or actual is MISSING else actual,
        unlike.why,
        comparator.kind,
        plan.chosen,
        unlike.undecided,
        unlike.code,
    )


def _keys(
    plan: Object, actual: Mapping[str, Json], path: str, context: Context
) -> Iterator[Mismatch]:
    for key, inner in plan.keys.items():
        if key in actual:
            yield from _mismatches(inner, actual[key], below(path, key), context)
        elif accepts_missing(inner):
            yield from _mismatches(inner, MISSING, below(path, key), context)
        else:
            yield Mismatch(below(path, key), plan.value[key], None, "is missing")
    for key in actual:
        if key not in plan.keys:
            yield Mismatch(below(path, key), None, actual[key], "was not expected")


def _items(plan: Items, actual: list[Json], path: str, context: Context) -> Iterator[Mismatch]:
    if plan.match == "exactly" and len(plan.items) != len(actual):
        why = wrong_length(list(plan.value), actual)
        yield Mismatch(path, plan.value, actual, why, LIST, plan.chosen)
    elif plan.match == "exactly" and plan.in_order:
        for index, (inner, item) in enumerate(zip(plan.items, actual, strict=True)):
            yield from _mismatches(inner, item, f"{path}[{index}]", context)
    else:
        yield from _loosely(plan, actual, path, context)


class _Edge(NamedTuple):
    right: bool
    doubtful: bool


def _loosely(plan: Items, actual: list[Json], path: str, context: Context) -> Iterator[Mismatch]:
    """Lists whose items are free in their order or in their number."""
    edges = [[_edge(inner, item, context) for item in actual] for inner in plan.items]
    by_actual = plan.match == "at_most"
    grid = [list(column) for column in zip(*edges, strict=True)] if by_actual else edges
    wanted = list(actual) if by_actual else list(plan.value)
    pair = _subsequence if plan.in_order else _pairing
    if (left := pair(grid, doubtful=False)) is None:
        return
    maybe = pair(grid, doubtful=True) is None
    why = (
        f"has an item that is not expected: {shown(wanted[left])}"
        if by_actual
        else f"has no item like {shown(wanted[left])}" + (" in its place" if plan.in_order else "")
    )
    yield Mismatch(path, list(plan.value), actual, why, LIST, plan.chosen, undecided=maybe)


def _edge(inner: Plan, item: Json, context: Context) -> _Edge:
    found = compare(inner, item, "", context)
    return _Edge(found is None, found is not None and found.undecided)


def _subsequence(grid: list[list[_Edge]], *, doubtful: bool) -> int | None:
    """The first row that finds no column behind that of the row before it; None if all do."""
    column = 0
    for row, edges in enumerate(grid):
        while column < len(edges) and not (
            edges[column].right or (doubtful and edges[column].doubtful)
        ):
            column += 1
        if column == len(edges):
            return row
        column += 1
    return None


def _pairing(grid: list[list[_Edge]], *, doubtful: bool) -> int | None:
    """The first row that no pairing of all rows up to it serves; None if there is one (Kuhn)."""
    owner: dict[int, int] = {}

    def serve(row: int, tried: set[int]) -> bool:
        # Breadth first, so that a long chain of exchanges needs no deep stack.
        came_from: dict[int, tuple[int, int | None]] = {}
        waiting: list[tuple[int, int | None]] = [(row, None)]
        for at, through in waiting:
            for column, edge in enumerate(grid[at]):
                if column in tried or not (edge.right or (doubtful and edge.doubtful)):
                    continue
                tried.add(column)
                came_from[column] = (at, through)
                if column not in owner:
                    end: int | None = column
                    while end is not None:
                        holder, earlier = came_from[end]
                        owner[end] = holder
                        end = earlier
                    return True
                waiting.append((owner[column], column))
        return False

    return next((row for row in range(len(grid)) if not serve(row, set())), None)
