"""The upkeep of the lakes beside the collecting: now and then, in a process of its own.

Compaction would take the CPU from receiving, and its memory would be ours; a child with a low
priority has both for itself and gives them back at its end. It may be killed at any time.
"""

import asyncio
import logging
import multiprocessing
import os
import signal as unix_signal
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from toolverdict.collector.errors import ConfigError, LakeError
from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.maintenance import MaintenanceSettings, maintain
from toolverdict.collector.lakes import lake_location, tenants
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.sampler import decided
from toolverdict.collector.settings import CollectorSettings

_LOG = logging.getLogger(__name__)

_NICE: Final = 10
_STOP_S: Final = 5.0


async def keep_up(settings: CollectorSettings, interval_s: float) -> None:
    """Compact and delete what is not kept any more, again and again, until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await _keep_up_once(settings)
        except Exception:  # noqa: BLE001 - no process to be had now; the next time there may be
            _LOG.exception("the upkeep of the lake failed and is tried again in %g s", interval_s)


async def _keep_up_once(settings: CollectorSettings) -> None:
    loop = asyncio.get_running_loop()
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=run_upkeep, args=(settings,), name="upkeep")
    process.start()
    ended = asyncio.Event()
    loop.add_reader(process.sentinel, ended.set)
    try:
        await ended.wait()
        process.join()
        if process.exitcode:
            _LOG.error("the upkeep of the lake ended with %s", process.exitcode)
    finally:
        loop.remove_reader(process.sentinel)
        process.kill()
        process.join(_STOP_S)


def run_upkeep(settings: CollectorSettings) -> None:
    """What the child does: every lake of the collector once."""
    # Ctrl-C is for the collector, which ends this process then.
    unix_signal.signal(unix_signal.SIGINT, unix_signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with suppress(OSError):
        os.nice(_NICE)
    try:
        wanted = _wanted(settings)
    except ConfigError as error:
        _LOG.error("the lake is not kept up: %s", error)
        return
    for tenant in (None, *tenants(settings.data_dir)):
        _maintain(lake_location(settings, tenant), wanted)


def _wanted(settings: CollectorSettings) -> MaintenanceSettings:
    """What to do, by the sampling policy as it is now."""
    thinning = None
    if settings.sampling_file is not None:
        thinning = partial(decided, SamplingPolicy.load(settings.sampling_file))
    return MaintenanceSettings(
        thinning=thinning,
        max_age=_timedelta(settings.retain_age_s),
        max_bytes=settings.retain_bytes,
    )


def _maintain(location: Path | str, wanted: MaintenanceSettings) -> None:
    try:
        done = maintain(Lake.open(location), wanted)
    except MemoryError:  # the lake of the next tenant may need less
        _LOG.error("the upkeep of %s failed: it needs more memory than there is", location)
        return
    except (LakeError, OSError) as error:  # the next time it may be well again
        _LOG.error("the upkeep of %s failed: %s", location, error)
        return
    for fault in done.retention.faults:
        _LOG.error("%s", fault)
    for fault in done.compaction.faults:
        _LOG.error("%s: %s", location, fault)
    if done.compaction.folders or done.retention.hours:
        _LOG.info(
            "%s: compacted %d parts to %d, deleted %d hours",
            location,
            done.compaction.parts_before,
            done.compaction.parts_after,
            len(done.retention.hours),
        )


def _timedelta(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
