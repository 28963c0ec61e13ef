"""The free space of a store's disks, while log files are deleted one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.operations.clean.disk_use import pressure, stops_writing, without

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.operations.clean.disk_use import DiskUse, Full, Pressure
    from rmqctl.store.config.clean_config import ExpirySettings


class Room:
    """The used space of a store's disks, while log files are deleted.

    `disks` are the disks of the log's folders, `logics_disk` is that of the queues. `stored` is the size of log, queues
    and index together, in bytes.
    """

    def __init__(
        self, settings: ExpirySettings, profile: Profile, disks: Sequence[DiskUse], logics_disk: DiskUse, stored: int
    ) -> None:
        self._settings = settings
        self._profile = profile
        self._disks = list(disks)
        self._logics_disk = logics_disk
        self._stored = stored

    def pressure(self) -> Pressure:
        """Return the full disks that make a broker delete files."""
        return pressure(self._settings, self._profile, self._disks, self._logics_disk, self._stored)

    def stops_writing(self) -> str:
        """Return why a broker accepts no messages because a disk is too full, or ""."""
        return stops_writing(self._settings, self._profile, self._disks, self._logics_disk)

    def is_helped(self, full: Full) -> bool:
        """Return whether deleting log files frees space on the full disk.

        False if the size of the disk is not known.
        """
        disk = full.disk
        if disk is None:
            return True
        is_shared = any(disk.device and disk.device == other.device for other in self._disks)
        return bool(disk.size) and (disk in self._disks or is_shared)

    def free(self, folder: Path, size: int, allocated: int) -> None:
        """Count a deleted log file of `size` bytes that freed `allocated` bytes of disk."""
        self._stored -= size
        home = next((disk for disk in self._disks if disk.path == folder), None)
        if home is None:
            return

        def freed(disk: DiskUse) -> DiskUse:
            shared = disk.path == home.path or (disk.device and disk.device == home.device)
            return without(disk, allocated, self._profile) if shared else disk

        self._disks = [freed(disk) for disk in self._disks]
        self._logics_disk = freed(self._logics_disk)
