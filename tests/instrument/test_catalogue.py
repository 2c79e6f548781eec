"""The catalogue: where tools come from, what pins them, and what is made of a change."""

import json
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from toolverdict.instrument import tool
from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError, Tool
from toolverdict.instrument.catalogue.diff import diff
from toolverdict.instrument.catalogue.sources import (
    catalogue_of,
    tool_of_function,
    tool_of_model,
    tools_of_json,
)


class Currency(StrEnum):
    EUR = "EUR"
    USD = "USD"


class Client:
    pass


@tool(labels=["payment"], schema_version="2.0.0", exclude=["api_key"])
async def refund(
    order_id: str,
    amount: Annotated[float, Field(gt=0, description="in euros")],
    currency: Currency = Currency.EUR,
    note: str | None = None,
    api_key: str = "",
) -> None:
    """Pay an order back."""


def test_a_decorated_function_is_a_closed_schema() -> None:
    made = tool_of_function(refund)
    assert (made.name, made.version, made.labels) == ("refund", "2.0.0", ("payment",))
    assert made.description == "Pay an order back."
    schema = made.schema
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["order_id", "amount"]
    assert set(schema["properties"]) == {"order_id", "amount", "currency", "note"}
    assert schema["properties"]["amount"]["exclusiveMinimum"] == 0


def test_any_signature_has_a_schema() -> None:
    def odd(schema: Any, client: Client, *more: int, model_config: int = 1, **rest: str) -> None:
        pass

    made = tool_of_function(odd).schema
    assert made["properties"]["client"] == {"x-python-type": f"{__name__}.Client"}
    assert made["properties"]["more"]["items"] == {"type": "integer"}
    assert set(made["properties"]) == {"schema", "client", "more", "model_config"}
    assert made["additionalProperties"] is True


def test_kinds_of_tools_and_models() -> None:
    @tool
    def items(n: int) -> Any:
        yield from range(n)

    class Shop:
        @tool(name="shop_get")
        def get(self, order_id: str) -> str:
            return order_id

    class Order(BaseModel):
        """An order."""

        id: str

    assert tool_of_function(items).schema["required"] == ["n"]
    made = tool_of_function(Shop().get)
    assert (made.name, list(made.schema["properties"])) == ("shop_get", ["order_id"])
    assert (tool_of_model(Order).name, tool_of_model(Order).description) == ("Order", "An order.")


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
LISTINGS: dict[str, Any] = {
    "mcp": {"tools": [{"name": "s", "description": "d", "inputSchema": SCHEMA}]},
    "rpc": {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "s", "inputSchema": SCHEMA}]}},
    "openai": [{"type": "function", "function": {"name": "s", "parameters": SCHEMA}}],
    "responses": [{"type": "function", "name": "s", "parameters": SCHEMA, "strict": True}],
    "anthropic": [{"name": "s", "input_schema": SCHEMA}],
    "single": {"name": "s", "input_schema": SCHEMA},
}


@pytest.mark.parametrize("kind", LISTINGS)
def test_what_others_list_is_read(kind: str) -> None:
    (made,) = tools_of_json(LISTINGS[kind])
    assert (made.name, made.schema) == ("s", SCHEMA)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([{"inputSchema": {}}], "tools, tool 0: has no name"),
        ([{"name": "s"}], "needs one of inputSchema"),
        ([{"name": "s", "inputSchema": {}, "parameters": {}}], "needs one of"),
        ([{"name": "s", "inputSchema": []}], "of the wrong type"),
        ([{"name": "s", "inputSchema": {}, "description": 1}], "of the wrong type"),
        (["s"], "is no object"),
        ("s", "is no list of tools"),
        ({"tools": [], "nextCursor": "x"}, "is one page of several"),
        ([{"name": "s", "inputSchema": {"maximum": 2**64}}], "has no hash"),
    ],
)
def test_no_entry_is_skipped_in_silence(document: Any, problem: str) -> None:
    with pytest.raises(CatalogueError, match=problem):
        list(tools_of_json(document))


def deep(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize("levels", [100, 5_000])
def test_a_schema_without_end_is_refused(levels: int) -> None:
    with pytest.raises(CatalogueError, match="has no hash"):
        Tool("s", deep(levels))


def test_the_two_hashes_tell_apart_what_changed() -> None:
    plain = Tool("s", SCHEMA, description="d")
    other_text = replace_(plain, description="e")
    assert other_text.schema_hash == plain.schema_hash
    assert other_text.definition_hash != plain.definition_hash
    titled = replace_(plain, schema={**SCHEMA, "title": "T"})
    assert titled.schema_hash == plain.schema_hash
    property_title = {"type": "object", "properties": {"title": {"type": "string"}}}
    assert Tool("s", property_title).schema_hash != Tool("s", {"type": "object"}).schema_hash
    assert replace_(plain, labels=("write",)).definition_hash != plain.definition_hash


def replace_(made: Tool, **changes: Any) -> Tool:
    return replace(made, **changes)


PIN = Catalogue.of(
    [
        Tool("refund", SCHEMA, version="1.0.0", labels=("payment",), description="Pay back."),
        Tool("search", SCHEMA, server="web", description="Find pages."),
    ]
)


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "lock.json").write_text(PIN.lock(), encoding="utf-8")
    assert Catalogue.load(tmp_path / "lock.json") == PIN
    assert diff(PIN, Catalogue.load(tmp_path / "lock.json")) == []


def edited(change: Callable[[Any], None]) -> str:
    document = json.loads(PIN.lock())
    change(document)
    return json.dumps(document)


CORRUPT: dict[str, str] = {
    "empty": "",
    "cut": PIN.lock()[:-20],
    "no lock": "{}",
    "list": "[]",
    "newer": edited(lambda d: d.update(version=2)),
    "version true": edited(lambda d: d.update(version=True)),
    "description edited": edited(lambda d: d["tools"]["refund"].update(description="x")),
    "label edited": edited(lambda d: d["tools"]["refund"].update(labels=[])),
    "version edited": edited(lambda d: d["tools"]["refund"].update(version="9.0.0")),
    "hash edited": edited(lambda d: d["tools"]["refund"].update(schema_hash="sha256:0")),
    "hash missing": edited(lambda d: d["tools"]["refund"].pop("definition_hash")),
    "tool missing": edited(lambda d: d["tools"].pop("refund")),
    "tools null": edited(lambda d: d.update(tools=None)),
    "entry null": edited(lambda d: d["tools"].update(refund=None)),
    "renamed key": edited(lambda d: d["tools"].update(other=d["tools"].pop("refund"))),
    "key twice": PIN.lock().replace('"digest"', '"version": 1, "digest"'),
    "nan": PIN.lock().replace('"version": 1', '"version": NaN'),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", CORRUPT)
def test_a_corrupt_pin_blocks(name: str, tmp_path: Path) -> None:
    (tmp_path / "lock.json").write_text(CORRUPT[name])
    with pytest.raises(CatalogueError, match=r"lock\.json: ") as caught:
        Catalogue.load(tmp_path / "lock.json")
    assert "\n" not in str(caught.value)


def test_a_pin_that_is_not_there_blocks(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="cannot be read"):
        Catalogue.load(tmp_path / "none.json")


def outcome(old: Tool, new: Tool) -> tuple[str, list[str]]:
    (found,) = diff(Catalogue.of([old]), Catalogue.of([new]))
    return found.verdict, [problem.code for problem in found.problems]


BASE = Tool("s", SCHEMA, version="1.0.0", description="Find.")
MORE = {**SCHEMA, "properties": {**SCHEMA["properties"], "r": {"type": "string"}}}  # type: ignore[dict-item]
NEED = {**SCHEMA, "required": ["q"]}
PAY = replace(BASE, labels=("payment",))

CHANGES: list[tuple[Tool, Tool, str, list[str]]] = [
    (BASE, replace(BASE, schema=MORE), "widening", ["unversioned_change"]),
    (BASE, replace(BASE, schema=MORE, version="1.1.0"), "widening", []),
    (BASE, replace(BASE, schema=NEED, version="1.1.0"), "breaking", ["breaking_without_major"]),
    (BASE, replace(BASE, schema=NEED, version="2.0.0"), "breaking", []),
    (BASE, replace(BASE, schema=NEED, version="0.9.0"), "breaking", ["breaking_without_major"]),
    (BASE, replace(BASE, schema=NEED, version="latest"), "breaking", ["breaking_without_major"]),
    (BASE, replace(BASE, description="Find. Then pay."), "behaviour", ["unversioned_change"]),
    (BASE, replace(BASE, description="Find. Then pay.", version="1.0.1"), "behaviour", []),
    (BASE, replace(BASE, version="1.0.1"), "compatible", []),
    (PAY, replace(PAY, schema=MORE, version="1.1.0"), "widening", ["needs_review"]),
    (PAY, replace(PAY, labels=(), version="2.0.0"), "behaviour", ["label_lowered", "needs_review"]),
    (BASE, replace(PAY, version="1.1.0"), "behaviour", ["needs_review"]),
    (
        replace(BASE, annotations={"readOnlyHint": True}),
        replace(BASE, annotations={"readOnlyHint": False}, version="1.1.0"),
        "behaviour",
        [],
    ),
    (
        replace(BASE, server="web", version=None),
        replace(BASE, server="web", version=None, description="x"),
        "behaviour",
        ["unversioned_change", "needs_review"],
    ),
]


@pytest.mark.parametrize(("old", "new", "verdict", "problems"), CHANGES, ids=range(len(CHANGES)))
def test_a_change_is_judged(old: Tool, new: Tool, verdict: str, problems: list[str]) -> None:
    assert outcome(old, new) == (verdict, problems)


def statuses(old: list[Tool], new: list[Tool]) -> dict[str, tuple[str, list[str]]]:
    found = diff(Catalogue.of(old), Catalogue.of(new))
    return {one.key: (one.status, [problem.code for problem in one.problems]) for one in found}


def test_a_rename_does_not_hide_behind_another_name() -> None:
    renamed = statuses([BASE], [replace(BASE, name="find")])
    assert renamed == {"s": ("renamed", ["renamed"])}
    other = Tool("other", {"type": "object"}, description="Something else altogether.")
    assert statuses([BASE], [other]) == {"s": ("removed", ["removed"]), "other": ("added", [])}


def test_a_new_tool_of_a_pinned_server_needs_a_look() -> None:
    web = replace(BASE, server="web")
    new = Tool("other", {"type": "object"}, server="web")
    assert statuses([web], [web, new]) == {"web/other": ("added", ["needs_review"])}
    local = Tool("pay", {"type": "object"}, labels=("payment",))
    assert statuses([], [local]) == {"pay": ("added", ["needs_review"])}


def test_one_name_on_two_servers_is_shadowing() -> None:
    web, evil = replace(BASE, server="web"), replace(BASE, server="evil")
    found = statuses([web], [web, evil])
    assert found["s"] == ("shadowed", ["shadowing"])
    assert found["evil/s"][0] == "added"


def test_sources_are_put_together(tmp_path: Path) -> None:
    (tmp_path / "web.json").write_text(json.dumps(LISTINGS["mcp"]))
    whole = catalogue_of(["toolverdict.scenarios.demo.tools", f"web={tmp_path}/web.json"])
    keys = [made.key for made in whole.tools]
    assert "web/s" in keys
    assert "refund_payment" in keys
    (one,) = catalogue_of(["toolverdict.scenarios.demo.tools:refund_payment"]).tools
    assert one.labels == ("payment", "write")


@pytest.mark.parametrize("source", ["no.such.module", "json", "json:nothing", "none.json"])
def test_a_source_without_tools_is_an_error(source: str) -> None:
    with pytest.raises(CatalogueError):
        catalogue_of([source])


@pytest.mark.parametrize("code", ["0", "1", ""])
def test_a_module_that_ends_the_process_is_one_that_cannot_be_read(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ends_with_{code or 'none'}"
    (tmp_path / f"{name}.py").write_text(f"raise SystemExit({code})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CatalogueError, match="cannot be imported"):
        catalogue_of([name])


def test_a_file_of_python_is_named_as_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tools.py").write_text("")
    for path in ("shop/tools.py", "./shop/tools.py"):
        with pytest.raises(CatalogueError, match=r"name its module instead: shop\.tools$"):
            catalogue_of([path])
