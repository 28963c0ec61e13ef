"""The folder of a store: where its parts are, and what wrote it, told by its signs.

| sign | who leaves it |
|---|---|
| `lock` | 4.x and later |
| `abort.bak` (each start leaves it), `timerwheel`, `timerlog/`, `compaction/`, config/timercheck, a PID in `abort` | 5.x |
| `consumequeue/CURRENT` (RocksDB) | 5.x with storeType=defaultRocksDB: not supported |
| `dledger-*/` | DLedger's own commit log: not supported |
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import LayoutNotSupported, NotAStore, Unreadable
from rmqctl.logfile.remote_path import root_text
from rmqctl.logfile.remote_storage import storage_of
from rmqctl.logfile.storage import Kind

if TYPE_CHECKING:
    from rmqctl.logfile.storage import Entry, Storage
    from rmqctl.store.config import BrokerConf

COMMITLOG = "commitlog"
CONSUMEQUEUE = "consumequeue"
CONSUMEQUEUE_EXT = "consumequeue_ext"
BATCHCONSUMEQUEUE = "batchconsumequeue"
QUEUE_PARTS = (CONSUMEQUEUE, CONSUMEQUEUE_EXT, BATCHCONSUMEQUEUE)
INDEX = "index"
CONFIG = "config"
CHECKPOINT = "checkpoint"
ABORT = "abort"
ABORT_BAK = "abort.bak"
EPOCH_FILE = "epochFileCheckpoint"
LOCK = "lock"
SIGNS_OF_5 = (ABORT_BAK, "timerwheel", "timerlog", "compaction", "config/timercheck", "config/consumerOrderInfo.json")
PID_IN_ABORT = "a PID in abort"
DLEDGER_PREFIX = "dledger-"
ROCKSDB_SIGN = "CURRENT"


class StorePath:
    """The parts of the store at `root`.

    Raises NotAStore when there is none, LayoutNotSupported for RocksDB and DLedger, Unreadable when the folder is closed to us.
    """

    def __init__(self, root: Path, conf: BrokerConf, *, follow_links: bool = False) -> None:
        self.root = root
        self.storage = _storage_of(root, follow_links=follow_links)
        entries = _entries(self.storage, root)
        self.commitlogs = [Path(path) for path in conf.commitlog_paths] or [root / COMMITLOG]
        self.writable_commitlogs = writable_commitlogs(root, conf)
        for path in conf.commitlog_paths:
            self.storage.trust(Path(path))
        _check_layout(self.storage, root, entries)
        _check_is_store(root, entries, has_log=any(self.storage.entry(path).kind is Kind.DIRECTORY for path in self.commitlogs))

    def part(self, name: str) -> Path:
        """The path of one of the store's parts."""
        return self.root / name

    @property
    def has_abort(self) -> bool:
        """Whether `abort` is there: a broker runs, or died."""
        return self.storage.entry(self.part(ABORT)).kind is not Kind.MISSING

    def version_signs(self) -> list[str]:
        """The signs of 5.x that are there."""
        found = [sign for sign in SIGNS_OF_5 if self.storage.entry(self.part(sign)).kind is not Kind.MISSING]
        if self.storage.entry(self.part(ABORT)).size:
            found.append(PID_IN_ABORT)
        return found

    @property
    def has_lock_file(self) -> bool:
        """Whether `lock` is there (4.x and later make it)."""
        return self.storage.entry(self.part(LOCK)).kind is not Kind.MISSING


def writable_commitlogs(root: Path, conf: BrokerConf) -> list[Path]:
    """The folders that new files of the log go to, in turn in this order (MultiPathMappedFileQueue)."""
    return [Path(path) for path in sorted(set(conf.commitlog_paths) - set(conf.read_only_commitlog_paths))] or [root / COMMITLOG]


def _storage_of(root: Path, *, follow_links: bool) -> Storage:
    try:
        return storage_of(root, follow_links=follow_links)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", path=root_text(root)) from error


def _entries(storage: Storage, root: Path) -> dict[str, Entry]:
    try:
        entry = storage.entry(root)
        if entry.kind is Kind.MISSING:
            raise NotAStore("no such folder", path=root_text(root))
        if entry.kind is not Kind.DIRECTORY:
            raise NotAStore("a store is a folder, this is not one", path=root_text(root))
        return {found.name: found for found in storage.listing(root)}
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", path=root_text(root)) from error


def _check_layout(storage: Storage, root: Path, entries: dict[str, Entry]) -> None:
    if any(name.startswith(DLEDGER_PREFIX) and entry.kind is Kind.DIRECTORY for name, entry in entries.items()):
        raise LayoutNotSupported("a DLedger store: its commit log has a format of its own", path=root_text(root))
    if storage.entry(root / CONSUMEQUEUE / ROCKSDB_SIGN).kind is Kind.FILE:
        hint = "queues and offsets are in RocksDB; rmqctl reads stores with storeType=default"
        raise LayoutNotSupported("a RocksDB store (storeType=defaultRocksDB)", path=root_text(root), hint=hint)


def _check_is_store(root: Path, entries: dict[str, Entry], *, has_log: bool) -> None:
    if has_log or COMMITLOG in entries or (CONSUMEQUEUE in entries and CHECKPOINT in entries):
        return
    if not entries:
        raise NotAStore("not a message store: the folder is empty", path=root_text(root))
    if any(len(name) == 20 and name.isdecimal() for name in entries):
        raise NotAStore(
            "not a message store: this looks like its commitlog folder",
            path=root_text(root),
            hint=f"try {root_text(root.absolute().parent)}",
        )
    if "store" in entries:
        raise NotAStore("not a message store: it has no commitlog folder", path=root_text(root), hint=f"try {root_text(root / 'store')}")
    raise NotAStore("not a message store: it has no commitlog folder", path=root_text(root))
