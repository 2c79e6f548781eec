"""The packaging: source roots, one namespace, what the wheel holds, what an import costs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["instrument", "collector", "scoring", "scenarios"]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_namespace_has_no_init_file() -> None:
    """One ``toolverdict/__init__.py`` would hide the other three packages."""
    assert not list(ROOT.glob("*/toolverdict/__init__.py"))


def test_every_package_is_typed() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "toolverdict" / package / "py.typed").is_file()


def test_the_roots_are_named_alike_everywhere(project: dict[str, Any]) -> None:
    tool = project["tool"]
    dotted = [f"toolverdict.{package}" for package in PACKAGES]
    assert tool["hatch"]["build"]["dev-mode-dirs"] == PACKAGES
    wheel = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert wheel == [f"{package}/toolverdict" for package in PACKAGES]
    assert [path.split("/")[-1] for path in tool["mypy"]["mypy_path"]] == PACKAGES
    assert tool["pyright"]["extraPaths"] == PACKAGES
    assert tool["ruff"]["src"] == PACKAGES
    assert tool["coverage"]["run"]["source_pkgs"] == dotted
    assert tool["importlinter"]["root_packages"] == dotted
    banned = tool["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert list(banned) == PACKAGES


def test_every_dependency_is_pinned_by_name_and_version_alone(project: dict[str, Any]) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(pin.count("==") == 1 and "/" not in pin and "@" not in pin for pin in pins)
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    wanted = [*project["project"]["dependencies"]]
    wanted += [need for group in groups for need in group if isinstance(need, str)]
    wanted += [need for extra in extras for need in extra if not need.startswith("toolverdict")]
    named = {re.split(r">=|\[", need)[0].lower().replace("_", "-") for need in wanted}
    assert named <= pinned


def test_the_command_lists_everything_and_loads_nothing() -> None:
    """``--help`` must not import pyarrow: a machine that only collects may lack the rest."""
    code = (
        "import sys; from toolverdict.commands import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'pyarrow', 'scipy', 'h11', 'grpc'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for name in ("demo", "collect", "score"):
        assert name in result.stdout


@pytest.mark.parametrize(
    ("module", "extra"), [("pyarrow", "scoring"), ("typer", "commands")], ids=["one", "all"]
)
def test_a_missing_extra_is_named(tmp_path: Path, module: str, extra: str) -> None:
    """Also where only the agent's side is installed: one line, no traceback."""
    missing = f"raise ModuleNotFoundError('no {module}', name='{module}')\n"
    (tmp_path / f"{module}.py").write_text(missing)
    result = subprocess.run(
        [sys.executable, "-m", "toolverdict", "score", "x", "--out", "y"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 2
    assert result.stderr.endswith(f"install it with: pip install 'toolverdict[{extra}]'\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--version"], ["score", "--help"], ["collect", "--help"]])
def test_the_command_answers(arguments: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "toolverdict", *arguments], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
