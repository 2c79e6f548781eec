"""Where the lakes of a collector are: in its folder, or in an object store with only the log here.

The lake of a tenant is ``tenants/NAME`` below the other, whole in itself: nobody can name another
tenant's data in a request, and it is read, kept, exported and deleted by its place alone.

A lake in an object store is remembered beside the log once it was reached, in ``wal/LAKE``. So a
collector starts, and acknowledges, also while the store cannot be reached; the log holds what
comes until then.
"""

import json
import logging
from pathlib import Path
from typing import Final

from toolverdict.collector.auth import TENANT
from toolverdict.collector.claim import cannot_write
from toolverdict.collector.durable import replace_durably
from toolverdict.collector.errors import ConfigError, LakeError
from toolverdict.collector.lake import LAKE_VERSION, Lake
from toolverdict.collector.lake.layout import LAKE_FILE, is_bucket_count
from toolverdict.collector.lake.object_store import is_url, store_of
from toolverdict.collector.parts import remove_unfinished
from toolverdict.collector.settings import CollectorSettings

_LOG = logging.getLogger(__name__)

_TENANTS: Final = "tenants"
_REMEMBERED: Final = "LAKE"


def tenant_folder(data_dir: Path, tenant: str | None) -> Path:
    """The folder with the log of a tenant, and its lake unless that is in an object store.

    Raises:
        ConfigError: when the name is none that a tenant may have.
    """
    if tenant is None:
        return data_dir
    if not TENANT.fullmatch(tenant):
        raise ConfigError("a tenant is named by lower-case letters, digits, - and _")
    return data_dir / _TENANTS / tenant


def tenants(data_dir: Path) -> list[str]:
    """The tenants that have sent something."""
    places = (f"*/{LAKE_FILE}", f"*/wal/{_REMEMBERED}")
    found = [path for place in places for path in (data_dir / _TENANTS).glob(place)]
    names = {path.relative_to(data_dir / _TENANTS).parts[0] for path in found}
    return sorted(name for name in names if TENANT.fullmatch(name))


def lake_location(settings: CollectorSettings, tenant: str | None) -> Path | str:
    """The folder or URL of a lake."""
    if settings.lake_url is None:
        return tenant_folder(settings.data_dir, tenant)
    root = settings.lake_url.rstrip("/")
    return root if tenant is None else f"{root}/{_TENANTS}/{tenant}"


def lake_of(settings: CollectorSettings, tenant: str | None) -> Lake:
    """A lake that was prepared; an object store need not be reached for it.

    Raises:
        LakeError: as :meth:`~toolverdict.collector.lake.Lake.open` does.
    """
    location = lake_location(settings, tenant)
    buckets = _remembered(settings, tenant)
    return Lake.open(location) if buckets is None else Lake(store_of(location), buckets)


def prepare_lake(settings: CollectorSettings, tenant: str | None, *, alone: bool) -> None:
    """Make a lake where there is none; its log is in a folder that is claimed.

    Args:
        settings: of the collector.
        tenant: whose lake.
        alone: that no other process of ours writes there: what a crash left unfinished is removed.

    Raises:
        ConfigError: when it cannot be made, or is one of a newer version.
    """
    location = lake_location(settings, tenant)
    if isinstance(location, Path):
        _prepare_folder(location, alone=alone)
        return
    if not is_url(location):
        raise ConfigError(
            f"{settings.lake_url} is no URL of an object store; give --lake s3://BUCKET/PATH, gs:// or az://"
        )
    try:
        lake = Lake.create(location)
        _remember(settings, tenant, lake)
    except (OSError, LakeError) as error:
        unreached = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(unreached, OSError):
            raise
        reason = str(unreached).partition("\n")[0][:200]
        if _remembered(settings, tenant) is None:
            raise ConfigError(
                f"cannot write to {location} ({reason}); give --lake a place that is there, and "
                "credentials that may write to it"
            ) from error
        _LOG.error("%s cannot be reached (%s): the log holds what comes", location, reason)


def _prepare_folder(folder: Path, *, alone: bool) -> None:
    try:
        lake = Lake.create(folder)
        unfinished = remove_unfinished(lake) if alone else 0
    except OSError as error:
        raise cannot_write(folder, error) from error
    if unfinished:
        _LOG.info("removed %d unfinished files", unfinished)


def _memory(settings: CollectorSettings, tenant: str | None) -> Path:
    return tenant_folder(settings.data_dir, tenant) / "wal" / _REMEMBERED


def _remember(settings: CollectorSettings, tenant: str | None, lake: Lake) -> None:
    content = {"version": LAKE_VERSION, "location": lake.location, "buckets": lake.buckets}
    path = _memory(settings, tenant)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
        replace_durably(temporary, path)
    except OSError as error:
        raise cannot_write(path.parent, error) from error


def _remembered(settings: CollectorSettings, tenant: str | None) -> int | None:
    """The number of buckets of a lake that was reached before, None when this one never was."""
    if settings.lake_url is None:
        return None
    try:
        content = json.loads(_memory(settings, tenant).read_text(encoding="utf-8"))
        same = content["location"] == lake_location(settings, tenant)
        buckets = content["buckets"]
        sound = content["version"] == LAKE_VERSION and is_bucket_count(buckets)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return buckets if same and sound else None
