import time

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


@pytest.mark.parametrize("name", ["refund[1]", "pay?", "a*", "[x]", "shop.refund[1]", "[!a]__x[1]"])
def test_a_name_means_itself(name: str) -> None:
    """A deny rule for a name with metacharacters does not fail open."""
    assert same_tool(name, name)
    assert exactly_tool(name, name)
    assert same_tool(bare_name(name), f"mcp__a__b__{bare_name(name)}")


@pytest.mark.parametrize("name", ["?", "*", "??"])
def test_a_name_of_wildcards_alone_means_itself_on_every_server(name: str) -> None:
    assert same_tool(name, f"__{name}")
    assert same_tool(name, f"a__b__{name}")


def test_a_pattern_is_a_glob_still() -> None:
    assert same_tool("refund[12]", "shop.refund1")
    assert not same_tool("refund[12]", "refund3")
    assert not exactly_tool("refund[1]", "shop.refund[1]")


LONG = ["a__", "mcp__a__", "mcp__", "a.", "_", "a/b:"]


@pytest.mark.parametrize("part", LONG)
@pytest.mark.parametrize("pattern", ["delete_user", "mcp__fs__*", "d*_u*r", "a__*a__b"])
def test_a_name_takes_no_longer_than_its_length(part: str, pattern: str) -> None:
    """Everything from a trace is hostile: 100,000 servers in one name."""
    started = time.process_time()
    assert not same_tool(pattern, part * 100_000)
    bare_name(part * 100_000)
    assert time.process_time() - started < 2
    if "fs" not in pattern:
        assert same_tool(pattern, part * 1_000 + "x__delete_user") == (pattern[0] == "d")


@given(st.text(alphabet="ab_./:mcp[]*?", max_size=20), st.text(alphabet="ab_.", max_size=8))
def test_any_ending_of_a_name_may_be_the_tool(name: str, server: str) -> None:
    assert same_tool(name, name)
    if "__" not in name and not name.startswith("mcp__") and bare_name(name) == name and name:
        assert same_tool(name, f"{server}__{name}")
