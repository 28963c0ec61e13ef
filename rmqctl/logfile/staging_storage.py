"""Files that count only when all of them are there.

Who puts them in their place has them on the disk first, all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.writable_storage import WritableStorage

if TYPE_CHECKING:
    from pathlib import Path


class StagingStorage(WritableStorage):
    """Write access to a folder of files that nobody looks for yet: nothing waits for the disk.

    All methods raise OSError.
    """

    def sync(self, descriptor: int) -> None:
        """Do nothing: the whole folder is synced later."""

    def sync_folder(self, folder: Path) -> None:
        """Do nothing: the whole folder is synced later."""
