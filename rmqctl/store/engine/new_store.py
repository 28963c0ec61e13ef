"""A store that is being created.

If no message is put into the store, the store can be deleted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.system.storage import Kind, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.logfile.system.writable_storage import WritableStorage


class NewStore:
    """A list of the files that `folders` had before the store was created.

    The folders are the store's root and the folders of its log. Raises OSError.
    """

    def __init__(self, storage: WritableStorage, folders: Sequence[Path]) -> None:
        self._storage = storage
        self._folders = folders
        self._made = sorted(
            {made for folder in folders for made in self._missing(folder)}, reverse=True
        )  # what is below comes first
        self._stood = {path for folder in folders if folder not in self._made for path, _ in tree_of(storage, folder)}

    def remove(self) -> None:
        """Delete the new files and folders, and keep the older files and folders.

        Raises OSError.
        """
        for folder in self._folders:
            if self._exists(folder):
                self._empty(folder)
        for made in self._made:
            if self._exists(made) and not self._storage.names(made):
                self._storage.remove_folder(made)

    def _missing(self, folder: Path) -> Iterator[Path]:
        """Yield `folder` and the folders above it that do not exist."""
        while not self._exists(folder):
            yield folder
            folder = folder.parent

    def _exists(self, folder: Path) -> bool:
        return self._storage.entry(folder).kind is not Kind.MISSING

    def _empty(self, folder: Path) -> None:
        for path, stamp in tree_of(self._storage, folder):
            if path in self._stood or path == folder:
                continue
            if stamp.kind is Kind.DIRECTORY:
                self._storage.remove_folder(path)
            else:
                self._storage.remove_file(path)
