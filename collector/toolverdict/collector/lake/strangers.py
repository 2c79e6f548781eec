"""What is below a lake and is none of its files: no reader sees it, and nobody may delete it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from toolverdict.collector.lake.layout import part_of, unfinished_file
from toolverdict.collector.lake.store import LocalStore, Store

_FOLDERS: Final = ("date=", "hour=", "bucket=", ".")
"""How the folders of a lake begin; with a dot, those that are being deleted."""


def strangers(store: Store, folder: str) -> Iterator[tuple[str, str]]:
    """Names below the lake that are not of the lake, each with what it is.

    Args:
        store: where the lake is.
        folder: below the lake.

    Raises:
        OSError: when the folder cannot be listed.
    """
    for entry in store.list(folder):
        if part_of(*entry) is None and unfinished_file(entry.name.rpartition("/")[2]) is None:
            yield entry.name, "is not a part of this lake"
    if isinstance(store, LocalStore):
        yield from _links_and_folders(store.root, folder)


def _links_and_folders(root: Path, folder: str) -> Iterator[tuple[str, str]]:
    if (root / folder).is_symlink() and "/" in folder:
        yield folder, _LINK
        return
    for path, folders, files in os.walk(root / folder):
        below = Path(path).relative_to(root).as_posix()
        for name in sorted(folders):
            if os.path.islink(os.path.join(path, name)):
                yield f"{below}/{name}", _LINK
            elif not name.startswith(_FOLDERS):
                yield f"{below}/{name}", "is a folder that is not of this lake"
        for name in sorted(files):
            where = os.path.join(path, name)
            if os.path.islink(where) and not os.path.exists(where):
                yield f"{below}/{name}", "is a link that leads nowhere"


_LINK: Final = "is a link to a folder, which no reader follows"
