"""The folders that symbolic links may lead into.

Whoever can write to a store can put a link into it that leads to any file that rmqctl can read. So a link is followed
only into the store's root, or into a commit log folder that broker.conf names.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rmqctl.logfile.access.place import names_below, reached


class TrustedFolders:
    """The root of a store, and further folders; with `follow_links`, all folders.

    `named` has the folders as the user named them.
    """

    def __init__(self, root: Path, *, follow_links: bool) -> None:
        self.named = [root]
        self._follow_links = follow_links
        self._real = [Path(os.path.realpath(root))]
        self._known: dict[Path, bool] = {}

    def trust(self, folder: Path) -> None:
        """Trust `folder`, and all that is in it."""
        self.named.append(folder)
        self._real.append(Path(os.path.realpath(folder)))

    def contain(self, folder: Path) -> bool:
        """Return whether the real path of a folder is in a trusted folder.

        A folder that is not below the root counts as trusted, because the user chose it.
        """
        if self._follow_links or names_below(folder, self.named[0]) is None:
            return True
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._contain_without_link(folder) or self.may_follow(folder)
        return known

    def _contain_without_link(self, folder: Path) -> bool:
        if folder == folder.parent:  # `.` and `/`
            return False
        name, held = reached(folder)
        try:
            found = os.stat(name, dir_fd=held, follow_symlinks=False)
        except OSError:
            return False
        return not stat.S_ISLNK(found.st_mode) and self.contain(folder.parent)

    def may_follow(self, link: Path) -> bool:
        """Return whether a link leads into a trusted folder."""
        if self._follow_links:
            return True
        target = self.real_path(link)
        return any(target.is_relative_to(real) for real in self._real)

    def real_path(self, path: Path) -> Path:
        """Return `path` with all links followed; a trusted folder stays what it was."""
        for folder, real in zip(self.named, self._real, strict=True):
            names = names_below(path, folder)
            if names is not None:
                return Path(os.path.realpath(real.joinpath(*names)))
        return Path(os.path.realpath(path))
