"""The disk usage of a store, and the decision to delete log files.

The rules for full disks are those of isSpaceToDelete in RocketMQ's CleanCommitLogService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.clean_config import ExpirySettings

CANNOT_BE_READ = -1.0
_MAX_BOUNDS = 10.0, 95.0
_WARNING_BOUNDS, _FORCE_BOUNDS = (35.0, 90.0), (30.0, 85.0)


class DiskUse(NamedTuple):
    """The used space of a folder's partition, as a broker computes it."""

    path: Path
    used_percent: float  # `used` in percent of `size`; -1 if it cannot be read
    used: int = 0  # bytes
    size: int = 0  # bytes
    total: int = 0  # bytes of the whole disk, with what is reserved for root; 0: not known
    device: int = 0  # the same for folders on the same disk; 0: not known


class Full(NamedTuple):
    """A disk, or a part of a disk, that is too full."""

    why: str  # how full the disk is, in words
    disk: DiskUse | None  # None: the store uses more than its part of a shared disk


class Pressure(NamedTuple):
    """The full disks that make a broker delete log files."""

    asks: Full | None  # makes it delete expired files
    forces: Full | None  # makes it delete files of any age
    calm: str  # the text for disks that are not too full


def disk_use(storage: Storage, path: Path, profile: Profile) -> DiskUse:
    """Return what UtilAll.getDiskPartitionSpaceUsedPercent gives for a folder.

    Before 4.9.2, it compares the used space with the whole disk. Since then, it leaves out the space that is reserved
    for root, and rounds up to a whole percentage. If the folder does not exist, its parent counts, because a starting
    broker creates missing folders.
    """
    space = storage.disk_space(path if storage.entry(path).kind is not Kind.MISSING else path.parent)
    if space is None or not space.total:
        return DiskUse(path, CANNOT_BE_READ)
    used = space.total - space.free
    size = used + space.usable if profile.counts_usable_space else space.total
    return DiskUse(path, _percent(used, size, profile), used, size, space.total, space.device)


def without(disk: DiskUse, freed: int, profile: Profile) -> DiskUse:
    """Return the use of a disk after `freed` bytes became free.

    `disk` itself if the size of the disk is not known.
    """
    if not disk.size:
        return disk
    used = max(disk.used - freed, 0)
    return disk._replace(used=used, used_percent=_percent(used, disk.size, profile))


def pressure(
    settings: ExpirySettings, profile: Profile, disks: Sequence[DiskUse], logics_disk: DiskUse, stored: int
) -> Pressure:
    """Return the full disks that make a broker delete files.

    Of the log's `disks`, only the least full one is checked. `stored` is the size of log, queues and index together, in
    bytes.
    """
    named = _named(disks, logics_disk)
    if profile.force_level_asks:
        return _pressure_of_5(settings, named, stored)
    limit = _bounded(settings.max_disk_percent, _MAX_BOUNDS)
    level = min(settings.warning_percent, settings.force_percent)
    asks = forces = None
    for name, disk in named:
        if forces is None and disk.used_percent > level:
            forces = Full(_why(name, disk, level), disk)
        if _asks(disk, limit):
            asks = Full(_why(name, disk, limit), disk)
            break
    return Pressure(asks, forces, _calm(named[0][1], limit))


def stops_writing(settings: ExpirySettings, profile: Profile, disks: Sequence[DiskUse], logics_disk: DiskUse) -> str:
    """Return why a broker accepts no messages because a disk is too full, or "".

    It accepts none while a disk is fuller than diskSpaceWarningLevelRatio.
    """
    level = (
        _bounded(settings.warning_percent, _WARNING_BOUNDS) if profile.force_level_asks else settings.warning_percent
    )
    full = [_why(name, disk, level) for name, disk in _named(disks, logics_disk) if disk.used_percent > level]
    return f"a broker takes no messages while {full[0]}" if full else ""


def _named(disks: Sequence[DiskUse], logics_disk: DiskUse) -> tuple[tuple[str, DiskUse], ...]:
    # a broker checks the least full disk of the log, and the disk of the queues
    return ("the log's disk", min(disks, key=lambda disk: disk.used_percent)), ("the queues' disk", logics_disk)


def _pressure_of_5(settings: ExpirySettings, named: Sequence[tuple[str, DiskUse]], stored: int) -> Pressure:
    limit = _bounded(settings.max_disk_percent, _MAX_BOUNDS)
    level = min(_bounded(settings.warning_percent, _WARNING_BOUNDS), _bounded(settings.force_percent, _FORCE_BOUNDS))
    calm = _calm(named[0][1], limit)
    for name, disk in named:
        if disk.used_percent > level:
            full = Full(_why(name, disk, level), disk)
            return Pressure(full, full, calm)
    if settings.replicas_per_disk > 1:
        return _logical_pressure(settings, named[0][1], stored, limit)
    asking = (Full(_why(name, disk, limit), disk) for name, disk in named if _asks(disk, limit))
    return Pressure(next(asking, None), None, calm)


def _logical_pressure(settings: ExpirySettings, log_disk: DiskUse, stored: int, limit: float) -> Pressure:
    # each store that shares the disk has its own part of it
    part = log_disk.total // settings.replicas_per_disk
    percent = stored * 100 / part if part else 0.0
    takes = f"the store takes {percent:.0f} % of its part of the disk, one of {settings.replicas_per_disk}"
    level = settings.logical_force_percent
    forces = Full(f"{takes}, more than {level:.0f} %", None) if percent > level else None
    asks = Full(f"{takes}, more than {limit:.0f} %", None) if percent > limit else None
    return Pressure(forces or asks, forces, f"{takes}, the limit is {limit:.0f} %")


def _asks(disk: DiskUse, limit: float) -> bool:
    return disk.used_percent < 0 or disk.used_percent > limit


def _why(name: str, disk: DiskUse, limit: float) -> str:
    if disk.used_percent < 0:
        return f"how full {name} is cannot be read ({disk.path})"
    return f"{name} is {disk.used_percent:.0f} % full, more than {limit:.0f} %"


def _calm(disk: DiskUse, limit: float) -> str:
    return f"the log's disk is {disk.used_percent:.0f} % full, the limit is {limit:.0f} %"


def _percent(used: int, size: int, profile: Profile) -> float:
    return float(-(-used * 100 // size)) if profile.counts_usable_space else used * 100 / size


def _bounded(value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return min(max(value, low), high)
