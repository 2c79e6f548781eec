"""Builds the native decoder with the package, where there is a C++ compiler.

Hatchling runs this for wheels and editable installs. Without a compiler, or when compiling fails,
the package is installed as it is: its decoder in pure Python serves then, and
``toolverdict collect --version`` and the collector's log say so.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

MODULE = "toolverdict.collector._decode"


class NativeDecoderHook(BuildHookInterface):  # type: ignore[misc]
    """Puts the extension into the wheel, or for an editable install beside the Python files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; ``version`` is ``standard`` or ``editable``."""
        self._folder = tempfile.TemporaryDirectory()
        collector = Path(self.root, "collector")
        built = _compile(collector / "native", Path(self._folder.name))
        if built is None:
            return
        package = Path(*MODULE.split(".")[:-1])
        if version == "editable":
            # Renamed into its place: a process that has the old one mapped goes on with it.
            final = collector / package / built.name
            temporary = final.with_suffix(".tmp")
            shutil.copy2(built, temporary)
            temporary.replace(final)
            return
        build_data["force_include"][str(built)] = str(package / built.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Forget what was compiled; it is in the wheel now."""
        self._folder.cleanup()


def _compile(sources: Path, folder: Path) -> Path | None:
    """The compiled extension, None when that did not work."""
    extension = Extension(
        MODULE,
        [str(sources / "module.cpp")],
        language="c++",
        extra_compile_args=["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"],
        optional=True,
    )
    command = build_ext(Distribution({"name": "toolverdict", "ext_modules": [extension]}))
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "temp")
    command.ensure_finalized()
    command.run()
    built = Path(command.get_ext_fullpath(MODULE))
    return built if built.exists() else None
