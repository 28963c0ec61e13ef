"""A store that is being created.

It can be deleted as long as no message was put into it.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, LayoutNotSupported
from rmqctl.format.checkpoint import CHECKPOINT_FILE_SIZE
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.logfile.system.writable_storage import UNFINISHED_SUFFIX, WritableStorage
from rmqctl.store.config import store_path
from rmqctl.store.engine.opening import writable_storage_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.logfile.system.storage import Entry
    from rmqctl.store.config.broker_conf import BrokerConf


_FOLDERS = (store_path.COMMITLOG, store_path.CONSUMEQUEUE, store_path.INDEX, store_path.SIGN_OF_5_4)
_FILES = (store_path.LOCK, store_path.MIRROR)
_UNFINISHED = tuple(f"{name}{UNFINISHED_SUFFIX}" for name in (*_FILES, store_path.ABORT_BAK, store_path.CHECKPOINT))


def is_as_created(storage: WritableStorage, root: Path) -> bool:
    """Return whether a folder is empty, or a store that never had a message.

    All folders of such a store are empty, and its only files are `lock`, an empty `abort.bak`, a checkpoint of zeros,
    and rmqctl-mirror.json. They may be unfinished: rmqctl may have been killed while it created the store. Raises
    OSError.
    """
    return all(_is_new(storage, entry) for entry in storage.listing(root))


def _is_new(storage: WritableStorage, entry: Entry) -> bool:
    if entry.kind is Kind.DIRECTORY:
        return entry.name in _FOLDERS and not storage.listing(entry.path)
    if entry.kind is not Kind.FILE:
        return False
    if entry.name == store_path.CHECKPOINT:
        return storage.read_start(entry.path, CHECKPOINT_FILE_SIZE + 1) == bytes(CHECKPOINT_FILE_SIZE)
    return entry.name in (*_FILES, *_UNFINISHED) or (entry.name == store_path.ABORT_BAK and not entry.size)


def folders_of_new(root: Path, conf: BrokerConf) -> tuple[WritableStorage, list[Path]]:
    """Return the storage of a store to be created, and the folders of its log.

    Raises FileExistsError if one of them has content, and LayoutNotSupported if broker.conf asks for DLedger or for
    queues in RocksDB.
    """
    if conf.dledger or conf.queues_in_rocksdb or conf.queues_in_both:
        what = "broker.conf asks for DLedger or RocksDB: rmqctl creates stores with an ordinary log and queues in files"
        raise LayoutNotSupported(what, path=str(root))
    storage, logs = writable_storage_of(root, conf), store_path.writable_commitlogs(root, conf)
    used = [] if is_as_created(storage, root) else [root]
    used += [folder for folder in logs if storage.listing(folder)]
    if used:
        raise FileExistsError(17, "already exists and is not empty", str(used[0]))
    return storage, logs


def unfinished(root: Path) -> Path:
    """Return where a store is written until it is complete: beside `root`."""
    return root.with_name(f"{root.name}.unfinished")


@contextmanager
def named_when_complete(root: Path) -> Iterator[None]:
    """Make the folder `unfinished(root)`, which gets its name at the end.

    No broker should start on a part of a store. If this fails, the folder is removed. Raises OSError, and BadRequest if
    one of the two exists; `root` may be an empty folder.
    """
    storage = WritableStorage(unfinished(root))
    if storage.stamp(storage.root) is not None:
        raise BadRequest("is left of an interrupted command", path=str(storage.root), hint="delete it")
    above = WritableStorage(root.parent)
    if above.stamp(root) is not None:
        if above.entry(root).kind is not Kind.DIRECTORY or above.names(root):
            raise BadRequest("exists and is not empty", path=str(root), hint="name a new folder")
        above.remove_folder(root)
    new = NewStore(storage, [storage.root])
    try:
        storage.make_folder(storage.root)
        yield
    except BaseException:
        with suppress(OSError):
            new.remove()
        raise
    above.rename(storage.root, root)
    above.sync_folder(root.parent)


class NewStore:
    """The files that existed in `folders` before the store was created.

    `folders` are the root of the store and the folders of its log. Raises OSError.
    """

    def __init__(self, storage: WritableStorage, folders: Sequence[Path]) -> None:
        self._storage = storage
        self._folders = folders
        self._made = sorted(
            {made for folder in folders for made in self._missing(folder)}, reverse=True
        )  # inner folders come first
        self._stood = {path for folder in folders if folder not in self._made for path, _ in tree_of(storage, folder)}

    def remove(self) -> None:
        """Delete the new files and folders, and keep all older ones. Raises OSError."""
        for folder in self._folders:
            if self._exists(folder):
                self._empty(folder)
        for made in self._made:
            if self._exists(made) and not self._storage.names(made):
                self._storage.remove_folder(made)

    def _missing(self, folder: Path) -> Iterator[Path]:
        """Yield the missing folders: `folder` and those above it."""
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
