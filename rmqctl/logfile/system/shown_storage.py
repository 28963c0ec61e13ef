"""Read access to a store whose databases are shown as files.

They are the files that other brokers have for the same content. Whoever reads the store reads them as any other. They
are made when they are read, and lie in no folder.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmqctl.logfile.system.storage import Storage
from rmqctl.scratch import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

_CACHED = 8  # contents of files that are kept for the next descriptor


class ShownFiles(Protocol):
    """The files that are shown in a folder of the store.

    `names` are those on the way from this folder. The methods raise OSError, for example for a damaged database.
    """

    def hides(self, names: tuple[str, ...]) -> bool:
        """Return whether only what is shown is there, whatever lies there in the store."""

    def names(self, names: tuple[str, ...]) -> list[str] | None:
        """Return the names that are shown in a folder, sorted; None without it."""

    def size(self, names: tuple[str, ...]) -> int | None:
        """Return the length of a file in bytes; None without it.

        0 stands for the length of its content.
        """

    def content(self, names: tuple[str, ...]) -> bytes:
        """Return the content of a file, without the zeros at its end."""


class _Place(NamedTuple):
    """A path in a folder with shown files, and the names from there to the path."""

    folder: Path
    files: ShownFiles
    names: tuple[str, ...]
    is_hidden: bool


class ShownStorage(Storage):
    """The files of a store in `base`, and those that `shown` has, by folder."""

    def __init__(self, base: Storage, shown: Mapping[Path, ShownFiles]) -> None:
        super().__init__(base.root, follow_links=base.follow_links)
        self._base = base
        self.shown = shown
        self._content = lru_cache(_CACHED)(lambda folder, names: self.shown[folder].content(names))

    @property
    def of_disk(self) -> Storage:
        """Return access to the files of the store."""
        return self._base

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted. Raises OSError."""
        place = self._place(folder)
        found = place.files.names(place.names) if place is not None else None
        if place is None or (found is None and not place.is_hidden):
            return super().names(folder)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        return found if place.is_hidden else sorted({*found, *super().names(folder)})

    def open(self, path: Path | str) -> int:
        """Open a file as Storage does; a shown one is a copy without a name."""
        place = self._place(Path(path))
        if place is None or not place.is_hidden:
            return super().open(path)
        size = place.files.size(place.names)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        from tempfile import TemporaryFile  # noqa: TID251 -- in a folder that is given

        with TemporaryFile(dir=temporary_folder()) as file:
            content = self._content(place.folder, place.names)
            file.write(content)
            file.truncate(max(size, len(content)))
            return os.dup(file.fileno())

    def _place(self, path: Path) -> _Place | None:
        for folder, files in self.shown.items():
            if path.is_relative_to(folder):
                names = path.relative_to(folder).parts
                return _Place(folder, files, names, files.hides(names))
        return None

    def _status(self, path: Path, *, follow: bool = False) -> os.stat_result:
        place = self._place(path)
        if place is None or not place.is_hidden:
            return super()._status(path, follow=follow)
        # a copy can lack the empty folder beside a database in another one
        folder = place.folder if os.path.lexists(place.folder) else place.folder.parent
        if not place.names:
            return super()._status(folder, follow=follow)
        size = place.files.size(place.names)
        if size is None and place.files.names(place.names) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        found = super()._status(folder, follow=True)
        kind = stat.S_IFDIR if size is None else stat.S_IFREG
        mode = kind | stat.S_IMODE(found.st_mode)
        times = {"st_mtime_ns": found.st_mtime_ns, "st_blocks": 0}
        return os.stat_result((mode, *found[1:6], size or 0, *found[7:10]), times)
