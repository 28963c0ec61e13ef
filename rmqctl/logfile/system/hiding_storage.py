"""Read access to a store without some of its files."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from rmqctl.logfile.system.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path


class HidingStorage(Storage):
    """The files of a store without those in `hidden`, files or folders."""

    def __init__(self, base: Storage, hidden: frozenset[Path]) -> None:
        super().__init__(base.root, follow_links=base.follow_links)
        self._hidden = hidden

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted. Raises OSError."""
        return [name for name in super().names(folder) if folder / name not in self._hidden]

    def _status(self, path: Path, *, follow: bool = False) -> os.stat_result:
        if not self._hidden.isdisjoint((path, *path.parents)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return super()._status(path, follow=follow)
