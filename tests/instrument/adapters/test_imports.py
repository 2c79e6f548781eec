"""An adapter imports its framework and no other; the package imports none."""

import subprocess
import sys

import pytest

FRAMEWORKS = {
    "openai_agents": "agents",
    "langchain": "langchain_core",
    "pydantic_ai": "pydantic_ai",
    "mcp": "mcp",
    "fastmcp": "fastmcp",
    "google_adk": "google.adk",
    "loops": None,
    "calls": None,
    "options": None,
    "known_tools": None,
    "validated": None,
    "graph_approvals": None,
}
OTHERS = ["langgraph", "langchain"]
BRINGS_MCP = ("openai_agents", "fastmcp")


def imported(statement: str) -> set[str]:
    names = [name for name in FRAMEWORKS.values() if name is not None] + OTHERS
    code = f"{statement}\nimport sys\nprint(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_imports_no_framework() -> None:
    assert imported("import toolverdict.instrument") == set()
    assert imported("import toolverdict.instrument.adapters") == set()


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_an_adapter_imports_its_framework_only(adapter: str) -> None:
    framework = FRAMEWORKS[adapter]
    if framework is not None:
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    found = imported(f"import toolverdict.instrument.adapters.{adapter}")
    allowed = {framework, "mcp"} if adapter in BRINGS_MCP else {framework}
    assert found <= allowed
