"""The gauges of a run of `rmqctl clean`, for --metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.cli.views.metrics_file import MetricsFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEANINGS = {
    "exit_status": "Exit status of the last run; 0: done, or nothing to do.",
    "expired_files": "Files that the plan of the last run deletes.",
    "expired_bytes": "Disk space of these files, and of files that an interrupted run left.",
    "waiting_messages": "Messages in these files: not consumed by a group, not delivered yet, or open half messages.",
    "deleted_files": "Files that the last run deleted.",
    "deleted_bytes": "Disk space of the deleted files, and of files that an interrupted run left.",
    "kept_files": "Files of the commit log that stay.",
    "log_min_offset_bytes": "The commit log's first physical offset.",
    "disk_used_percent": "How full the disk of a folder of the store was before; -1: unknown.",
}


class CleanMetrics(MetricsFile):
    """The gauges of one run of `rmqctl clean` on `store`."""

    def __init__(self, store: Path) -> None:
        super().__init__("clean", store, MEANINGS)

    def set_disks(self, disks: Sequence[tuple[Path, float]]) -> None:
        """Set the gauge of the disk usage in percent, for each folder of the store."""
        for path, percent in disks:
            self.set("disk_used_percent", percent, path=str(path))
