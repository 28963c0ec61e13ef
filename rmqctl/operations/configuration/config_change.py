"""The change of a file in config/, made through a journal.

The old content becomes the `.bak`, as with a broker, unless a broker could not load it: the present `.bak` may be good.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import ChangedSince, LayoutNotSupported, Unreadable
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config.config_file import BACKUP_SUFFIX, CONFIG_SIZE_MAX, rocksdb_folder
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.journal.changes import Install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@dataclass(frozen=True)
class ConfigChange:
    """A change that gives the file config/`name` the content `after`."""

    name: str
    before: bytes | None  # None: the file does not exist
    after: bytes
    keeps_before: bool  # a broker can load the present content, which becomes the `.bak`

    def changes(self, staging: Path) -> list[Install]:
        """Return the changes that install the new files from `staging` in config/."""
        names = [self.name + BACKUP_SUFFIX, self.name] if self.keeps_before else [self.name]
        return [Install(f"{CONFIG}/{name}", staging, name) for name in names]

    def build(self, storage: WritableStorage, staging: Path) -> None:
        """Create the new files in `staging`. Raises OSError."""
        if self.keeps_before and self.before is not None:
            storage.replace_file(staging / (self.name + BACKUP_SUFFIX), self.before)
        storage.replace_file(staging / self.name, self.after)


def planned_change(store: ReadOnlyStore, name: str, after: bytes) -> ConfigChange | None:
    """Return the change that gives config/`name` the content `after`.

    None if the file already has it. Raises OSError, and Unreadable if config/`name` exists but is not a file.
    """
    path = store.path.part(CONFIG) / name
    before = _content(store.storage, path)
    if before == after:
        return None
    return ConfigChange(name, before, after, keeps_before=store.config(name).source == path)


def check_is_in_files(store: ReadOnlyStore) -> None:
    """Raise LayoutNotSupported if the configuration is in RocksDB.

    Such a broker does not read the files of config/ that rmqctl changes.
    """
    folder = store.path.part(CONFIG)
    name = rocksdb_folder(store.storage, folder)
    if name is not None:
        what = "the configuration is in RocksDB: a change of the files in config/ would not reach the broker"
        hint = (
            "a running broker changes it: mqadmin resetOffsetByTime, updateTopic or updateSubGroup; if the broker no "
            f"longer uses this database, move it away: mv {name} {name}.old"
        )
        raise LayoutNotSupported(what, path=str(folder / name), hint=hint)


def build(store: ReadOnlyStore, files: Sequence[ConfigChange], staging: Path) -> list[Install]:
    """Create the new files in `staging`, and return the changes for `make_change`.

    Raises ChangedSince if a file has changed since the plan was made. Raises Unreadable and OSError.
    """
    storage = WritableStorage.like(store.storage)
    for file in files:
        path = store.path.part(CONFIG) / file.name
        if _content(store.storage, path) != file.before:
            what = "this file was changed while the plan was made; nothing was changed by this"
            raise ChangedSince(what, path=str(path), hint="run it again")
        file.build(storage, staging)
    return [change for file in files for change in file.changes(staging)]


def _content(storage: Storage, path: Path) -> bytes | None:
    kind = storage.entry(path).kind
    if kind is Kind.MISSING:
        return None
    if kind is not Kind.FILE:
        raise Unreadable(f"{kind.value}, not a file of the store", path=str(path))
    return storage.read_file(path, CONFIG_SIZE_MAX)
