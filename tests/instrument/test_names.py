import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.names import bare_name, exactly_tool, same_tool

SPELLINGS = [
    "delete_file",
    "mcp__fs__delete_file",
    "mcp__my_srv__delete_file",
    "fs.delete_file",
    "fs/delete_file",
    "fs:delete_file",
    "acme.tools.delete_file",
]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_bare_name_has_no_server(name: str) -> None:
    assert bare_name(name) == "delete_file"


@pytest.mark.parametrize("name", ["", "mcp__", "mcp__fs__", "fs.", "delete__file", "/"])
def test_a_name_without_a_server_stays(name: str) -> None:
    assert bare_name(name) == name


@given(st.text(alphabet="ab_./:mcp", max_size=20))
def test_a_bare_name_is_bare(name: str) -> None:
    assert bare_name(bare_name(name)) == bare_name(name)


@pytest.mark.parametrize("name", [*SPELLINGS, "mcp__my__srv__delete_file", "fs__delete_file"])
@pytest.mark.parametrize("pattern", ["delete_file", "delete_*", "fs.delete_file"])
def test_a_forbidden_tool_matches_however_it_is_spelled(pattern: str, name: str) -> None:
    """B139: a server's prefix does not open a hole in a list of forbidden tools."""
    assert same_tool(pattern, name)


def test_a_pattern_for_a_server_means_that_server() -> None:
    assert same_tool("mcp__fs__*", "fs/read")
    assert same_tool("fs.*", "mcp__fs__read")
    assert not same_tool("fs.*", "mcp__web__read")
    assert not same_tool("fs.*", "read")
    assert same_tool("*", "mcp__fs__read")


def test_a_permission_is_for_the_full_name_only() -> None:
    """B140: a tool of the same name on another server is another tool."""
    assert exactly_tool("search", "search")
    assert not exactly_tool("search", "mcp__web__search")
    assert exactly_tool("mcp__docs__search", "mcp__docs__search")
    assert not exactly_tool("mcp__docs__search", "mcp__web__search")
    assert exactly_tool("*search", "mcp__web__search")


def test_case_matters() -> None:
    assert not same_tool("delete", "Delete")
    assert not exactly_tool("delete", "Delete")


def test_nothing_hides_behind_a_newline() -> None:
    assert not exactly_tool("get_*_x", "get_order\n")
    assert not exactly_tool("get_order", "get_order\n")
