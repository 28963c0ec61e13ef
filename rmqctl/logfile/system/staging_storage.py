"""Write access to files that become part of a store later.

When all are complete, they are synced together, and moved into the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.system.writable_storage import WritableStorage

if TYPE_CHECKING:
    from pathlib import Path


class StagingStorage(WritableStorage):
    """Write access to a folder whose files are not part of a store yet.

    Writes do not wait for the disk. All methods raise OSError.
    """

    def sync(self, descriptor: int) -> None:
        """Do nothing, because the whole folder is synced later."""

    def sync_folder(self, folder: Path) -> None:
        """Do nothing, because the whole folder is synced later."""
