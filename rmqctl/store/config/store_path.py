"""The folder of a store: the paths of its parts, and signs of its broker version.

| sign | brokers that create the sign |
|---|---|
| `lock` | 4.3 and later, not 4.1 |
| `abort.bak` (each start creates it), `timerwheel`, `timerlog/`, `compaction/`, config/timercheck | 5.x |
| a PID in `abort` | 5.x |
| `rocksdbstore/`, config/metadata | 5.4 and later |
| `consumequeue_rocksdb/` | 5.5 and later |
| `kvStore/`, config/rdb | 5.3.2 and later |
| config/users, config/acls | 5.3 and later |
| `consumequeue/CURRENT`, without topics in `consumequeue` | 5.2 and later, storeType=defaultRocksDB |
| the same with topics | 5.3.1 and later, rocksdbCQDoubleWriteEnable: queues in files, and the same in RocksDB |
| `consumequeue_rocksdb/` in place of `consumequeue/` for the database | 5.5, useSeparateStorePathForRocksdbCQ |
| `dledger-ID/` | brokers of a DLedger group, log in `data/`, a header before each record: read-only |
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, LayoutNotSupported, NotAStore, Unreadable
from rmqctl.logfile.access.place import from_root, is_same
from rmqctl.logfile.mapped_file_queue import LINK_TEXT
from rmqctl.logfile.system.remote_storage import RemoteStorage, root_text, storage_of
from rmqctl.logfile.system.rocksdb import CURRENT, Database, can_read_databases, has_database, has_rows
from rmqctl.logfile.system.shown_storage import ShownStorage
from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.store.config.databases import config_files, config_layout, queue_files
from rmqctl.store.rocksdb.config_files import SHOWN, SINGLE, V1, V2
from rmqctl.store.rocksdb.queue_files import QueueFiles
from rmqctl.text import install_extra

if TYPE_CHECKING:
    from rmqctl.logfile.system.storage import Entry
    from rmqctl.store.config.broker_conf import BrokerConf

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
EPOCH_FILE, BROKER_IDENTITY = "epochFileCheckpoint", "brokerIdentity"  # with a controller (5.x)
LOCK = "lock"
TIMER_LOG, TIMER_WHEEL = "timerlog", "timerwheel"  # of 5.x
COMPACTION = "compaction"  # of 5.1 and later
MIRROR = "rmqctl-mirror.json"  # `rmqctl replicate` wrote the store; no broker knows the file
BROKER_CONF = "broker.conf"  # in a store that `rmqctl extract` wrote: its file sizes
SINGLE_FILES = (CHECKPOINT, ABORT, ABORT_BAK, EPOCH_FILE, LOCK)
SIGN_OF_5_4 = "rocksdbstore"  # each start of a 5.4 broker creates this folder
ROCKSDB_FOLDER = "consumequeue_rocksdb"  # useSeparateStorePathForRocksdbCQ
SIGN_OF_DATABASE = "LOCK"  # what is left of a database for the next start to fill; a broker locks the file anyway
KV_FOLDER = "kvStore"  # with popConsumerKVServiceInit
AUTH_DATABASES = ("users", "acls")  # in config/
SIGNS_OF_5 = {  # and the first versions that write them
    ROCKSDB_FOLDER: "5.5",
    SIGN_OF_5_4: "5.4",
    f"{CONFIG}/{SINGLE[0]}": "5.4",
    KV_FOLDER: "5.3.2",
    f"{CONFIG}/{V2[0]}": "5.3.2",
    **{f"{CONFIG}/{name}": "5.3" for name in AUTH_DATABASES},
    f"{CONSUMEQUEUE}/{CURRENT}": "5.2",
    ABORT_BAK: "5.0",
    TIMER_WHEEL: "5.0",
    TIMER_LOG: "5.0",
    COMPACTION: "5.1",
    "config/timercheck": "5.0",
    "config/consumerOrderInfo.json": "5.0",
}
PID_IN_ABORT = "a PID in abort"
NEAR_MAX = 100  # folders in which a store is looked for, to be named in an error
DLEDGER_PREFIX, DLEDGER_DATA = "dledger-", "data"
_ROCKSDB_NAMES = frozenset({CURRENT, "IDENTITY", "LOCK", "LOG"})
_SURE_SIGNS = (CURRENT, "IDENTITY", "LOCK", "MANIFEST-")  # of a database, also beside the folders of topics
_ROCKSDB_PREFIXES, _ROCKSDB_SUFFIXES = ("MANIFEST-", "OPTIONS-", "LOG.old."), (".sst", ".log", ".dbtmp", ".blob")


class Layout(Enum):
    """Where the queues and the log of a store are.

    FILES: queues in files. COMBINED: in files, which rmqctl reads, and in RocksDB. ROCKSDB: only in RocksDB. DLEDGER:
    queues in files, and a DLedger group writes the log.
    """

    FILES = "files"
    COMBINED = "files and RocksDB"
    ROCKSDB = "RocksDB"
    DLEDGER = "DLedger"


def is_rocksdb_name(name: str) -> bool:
    """Return whether `name` is a file name of RocksDB."""
    return name in _ROCKSDB_NAMES or name.startswith(_ROCKSDB_PREFIXES) or name.endswith(_ROCKSDB_SUFFIXES)


class StorePath:
    """The paths of a store's parts; `root` is the folder of the store.

    The layout depends on the files of the store and on `conf`. Raises NotAStore if `root` is not the folder of a store,
    and Unreadable if it cannot be opened. Queues in RocksDB are read if the extra `rocksdb` is installed, and the store
    is on this host; else LayoutNotSupported is raised, unless the caller can do without them (`log_only`).
    """

    def __init__(
        self,
        root: Path,
        conf: BrokerConf,
        *,
        follow_links: bool = False,
        log_only: bool = False,
        storage: Storage | None = None,
    ) -> None:
        self.root = root
        self.log_only = log_only
        self.storage = storage or _storage_of(root, follow_links=follow_links)
        entries = _entries(self.storage, root)
        named = named_commitlogs(root, conf)
        self.commitlogs = named or [root / COMMITLOG]
        self.writable_commitlogs = writable_commitlogs(root, conf)
        is_other = bool(conf.store_root) and not is_same(Path(conf.store_root), root)
        outside = [path for path in self.commitlogs if not path.is_relative_to(root)]
        self._log_of_other = outside[0] if is_other and outside and COMMITLOG in entries else None
        self.entries_in = _dledger_data(root, entries, conf)
        if self.entries_in is not None:
            older = [path for path in self.commitlogs if self.storage.entry(path).kind is not Kind.MISSING]
            self.commitlogs = [*older, self.entries_in]
        disk = self.storage.of_disk
        is_separate = self.entries_in is None and _is_separate(disk, root)
        self.layout = (
            Layout.DLEDGER if self.entries_in is not None else _layout(disk, root, conf, is_separate=is_separate)
        )
        self._is_said = bool(conf.path)
        self.reads_databases = not isinstance(self.storage, RemoteStorage) and can_read_databases()
        self.queue_database_folder = ROCKSDB_FOLDER if is_separate else CONSUMEQUEUE  # its name
        self.reads_queues = self.layout is not Layout.ROCKSDB or self.reads_databases
        if not (self.reads_queues or log_only):
            what = "a store with its queues in RocksDB"
            raise LayoutNotSupported(what, path=root_text(root), hint=self.unread_databases)
        self.config_databases: tuple[str, ...] = ()  # the folders in config/ that the broker reads in place of files
        if CONFIG in entries:
            self.config_databases = _config_databases(self.storage.of_disk, root, conf, self.layout)
        shown = self.storage.shown.get(self.part(CONSUMEQUEUE)) if isinstance(self.storage, ShownStorage) else None
        self.queue_database = shown if isinstance(shown, QueueFiles) else None
        if self.reads_databases and type(self.storage) is Storage:
            self._show_databases(conf)
        for path in named:
            self.storage.trust(path)
        has_log = any(self.storage.entry(path).kind is Kind.DIRECTORY for path in self.commitlogs)
        if not (has_log or COMMITLOG in entries or (CONSUMEQUEUE in entries and CHECKPOINT in entries)):
            why = "it has no commitlog folder" if entries else "the folder is empty"
            raise _no_store(f"not a message store: {why}", self.storage, root)

    def part(self, name: str) -> Path:
        """Return the path of a part of the store, for example `index`."""
        return self.root / name

    def database_of(self, name: str) -> str:
        """Return the database that stands for config/`name`; "" if the file is read."""
        if name not in SHOWN or not self.config_databases:
            return ""
        return f"{CONFIG}/{self.config_databases[SHOWN.index(name) if len(self.config_databases) > 1 else 0]}"

    def unread_config(self, name: str) -> str:
        """Say why config/`name`, which is in a database, is not read; "" else."""
        where, why = self.database_of(name), self.unread_databases
        if where and not why and self.part(where) in self.linked_parts:
            why = LINK_TEXT
        return f"{name} is in RocksDB ({where}), and is not read: {why}" if where and why else ""

    @cached_property
    def message_database(self) -> Database | None:
        """The database in rocksdbstore/ as it is at the first call.

        None without one that has rows and can be opened here. Raises OSError.
        """
        folder = self.part(SIGN_OF_5_4)
        is_there = self.reads_databases and has_database(self.storage, folder) and has_rows(self.storage, folder)
        return Database(self.storage, folder) if is_there else None

    def check_can_be_changed(self, *, log_stays: bool = False, refills: bool = False) -> None:
        """Raise LayoutNotSupported or BadRequest if rmqctl must not change this store.

        With `log_stays`, only queues, index or configuration change. With `refills`, the plan removes queues in RocksDB
        if it changes what they lead to.

        A broker does not start if RocksDB differs from the store's files. The log of a DLedger store is its group's;
        its queues and index are ordinary files. A copy with the broker.conf of the original has two logs: a change of
        the copy must not reach the original's.
        """
        if self._log_of_other is not None:
            what = f"broker.conf names another store, whose log is {self._log_of_other}: nothing is changed"
            hint = "give a copy of broker.conf with storePathRootDir and storePathCommitLog of this store"
            raise BadRequest(what, path=root_text(self.root), hint=hint)
        if self.layout is Layout.DLEDGER and not log_stays:
            what = "a DLedger store: rmqctl does not change its log, which is the group's"
            hint = "`rmqctl rebuild` writes its queues and index anew"
            raise LayoutNotSupported(what, path=root_text(self.root), hint=hint)
        may_refill = refills and self.reads_databases
        if self.layout not in (Layout.FILES, Layout.DLEDGER) and not may_refill:
            what = f"its queues are in {self.layout.value}, and rmqctl writes no database"
            let = "`rmqctl recover`, `truncate` and `rebuild` let a start fill them"
            hint = let if self.reads_databases else self.unread_databases
            raise LayoutNotSupported(what, path=root_text(self.root), hint=hint)

    def check_plain_log(self) -> None:
        """Raise LayoutNotSupported if the log has DLedger's headers between its records."""
        if self.layout is Layout.DLEDGER:
            what = "a DLedger store: this reads no log with DLedger's headers"
            hint = "`rmqctl verify`, `rmqctl dump`, `rmqctl lag` and `rmqctl trace` read it"
            raise LayoutNotSupported(what, path=root_text(self.root), hint=hint)

    def _show_databases(self, conf: BrokerConf) -> None:
        shown = config_files(self.storage, self.part(CONFIG), self.config_databases)
        if self.layout in (Layout.ROCKSDB, Layout.COMBINED):
            self.queue_database = queue_files(self.storage, self.part(self.queue_database_folder), conf)
        if self.layout is Layout.ROCKSDB:
            shown |= {self.part(CONSUMEQUEUE): self.queue_database} if self.queue_database else {}
        if shown:
            self.storage = ShownStorage(self.storage, shown)

    @property
    def unread_databases(self) -> str:
        """Say what it takes to read databases; "" if they are read."""
        if self.reads_databases:
            return ""
        return "copy the store to this host" if isinstance(self.storage, RemoteStorage) else install_extra("rocksdb")

    @cached_property
    def linked_parts(self) -> list[Path]:
        """The databases, and parts of DLedger, that are links out of the store."""
        disk = self.storage.of_disk
        if isinstance(disk, RemoteStorage):
            return []
        of_config = [f"{CONFIG}/{name}" for name in (*V1, *SINGLE, *V2, *AUTH_DATABASES)]
        paths = [self.part(name) for name in (SIGN_OF_5_4, ROCKSDB_FOLDER, KV_FOLDER, *of_config)]
        if self.entries_in is not None:
            paths += [self.entries_in.with_name(name) for name in (INDEX, CHECKPOINT)]
        linked = [path for path in paths if disk.entry(path).kind is Kind.LINK_OUT]
        return [path for path in linked if disk.entry(path.parent).kind is Kind.DIRECTORY]

    @property
    def is_queue_database_linked(self) -> bool:
        """Return whether a link out of the store is in the place of the queues' database."""
        folders = (self.part(CONSUMEQUEUE), self.part(ROCKSDB_FOLDER))
        places = (*folders, *(folder / CURRENT for folder in folders))
        return any(self.storage.of_disk.entry(path).kind is Kind.LINK_OUT for path in places)

    @property
    def database_files(self) -> list[str]:
        """The names of the queues' files in RocksDB, also what is left of them."""
        entries = self.storage.of_disk.listing(self.part(self.queue_database_folder))
        return [entry.name for entry in entries if entry.kind is Kind.FILE and is_rocksdb_name(entry.name)]

    @property
    def is_refilled(self) -> bool:
        """Return whether the next start fills the queues in RocksDB from the whole log."""
        has_none = self.layout in (Layout.ROCKSDB, Layout.COMBINED) and self.queue_database is None
        return has_none and self.has_abort and self.storage.entry(self.part(CHECKPOINT)).kind is Kind.MISSING

    @property
    def has_abort(self) -> bool:
        """Return whether `abort` exists: a broker runs, or did not stop cleanly.

        A folder `abort` counts, as in a broker (new File(abort).exists()).
        """
        return self.storage.entry(self.part(ABORT)).kind is not Kind.MISSING

    @property
    def shows_no_layout(self) -> bool:
        """Return whether nothing shows where the queues were.

        They are taken for files then, but may have been in RocksDB.
        """
        is_guess = self.layout is Layout.FILES and not self._is_said and not isinstance(self.storage, RemoteStorage)
        if not is_guess or self.storage.entry(self.part(CONFIG) / SHOWN[0]).kind is not Kind.MISSING:
            return False
        return not self.storage.kinds(str(self.part(CONSUMEQUEUE))) and bool(self.version_signs())

    def version_signs(self) -> list[str]:
        """Return the signs of a 5.x broker in the store.

        A sign is the name of a file or folder, or PID_IN_ABORT for a PID in the file `abort`.
        """
        disk = self.storage.of_disk
        found = [sign for sign in SIGNS_OF_5 if disk.entry(self.part(sign)).kind is not Kind.MISSING]
        abort = self.storage.entry(self.part(ABORT))
        if abort.kind is Kind.FILE and abort.size:
            found.append(PID_IN_ABORT)
        return found

    @property
    def has_lock_file(self) -> bool:
        """Return whether the file `lock` exists: brokers since 4.3 create it, not 4.1."""
        return self.storage.entry(self.part(LOCK)).kind is not Kind.MISSING


def named_commitlogs(root: Path, conf: BrokerConf) -> list[Path]:
    """Return the commit log folders that broker.conf names."""
    return [from_root(root, path) for path in conf.commitlog_paths]


def writable_commitlogs(root: Path, conf: BrokerConf) -> list[Path]:
    """Return the folders in which a broker creates new commit log files.

    They are in the order in which it uses them (MultiPathMappedFileQueue).
    """
    writable = sorted(set(conf.commitlog_paths) - set(conf.read_only_commitlog_paths))
    return [from_root(root, path) for path in writable] or [root / COMMITLOG]


def _storage_of(root: Path, *, follow_links: bool) -> Storage:
    try:
        return storage_of(root, follow_links=follow_links)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", path=root_text(root)) from error


def _entries(storage: Storage, root: Path) -> dict[str, Entry]:
    try:
        entry = storage.entry(root)
        if entry.kind is Kind.MISSING:
            raise _no_store("no such folder", storage, root)
        if entry.kind is not Kind.DIRECTORY:
            raise _no_store("this is a file, but a store is a folder", storage, root)
        return {found.name: found for found in storage.listing(root)}
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", path=root_text(root)) from error


def _dledger_data(root: Path, entries: dict[str, Entry], conf: BrokerConf) -> Path | None:
    """Return the folder with the log of a DLedger store; None for an ordinary log.

    Raises LayoutNotSupported if the log named in broker.conf does not exist, or if there are several and broker.conf
    names none.
    """
    found = [
        name for name, entry in entries.items() if name.startswith(DLEDGER_PREFIX) and entry.kind is Kind.DIRECTORY
    ]
    if not (found or conf.dledger):
        return None
    wanted = sorted(name for name in found if conf.dledger_id in ("", name.removeprefix(DLEDGER_PREFIX)))
    if not wanted:
        name = DLEDGER_PREFIX + (conf.dledger_id or "ID")
        what = f"broker.conf says that this is a DLedger store, but it has no folder {name}"
        raise LayoutNotSupported(what, path=root_text(root), hint="give the broker.conf of this store, or none")
    if len(wanted) > 1:
        hint = "give --broker-conf: its dLegerSelfId says which log is this broker's"
        raise LayoutNotSupported(
            f"this DLedger store has several logs: {', '.join(wanted)}", path=root_text(root), hint=hint
        )
    return root / wanted[0] / DLEDGER_DATA


def _is_separate(storage: Storage, root: Path) -> bool:
    if isinstance(storage, RemoteStorage):
        return has_database(storage, root / ROCKSDB_FOLDER)
    with suppress(OSError):
        return any(map(is_rocksdb_name, (name for name, _ in storage.kinds(str(root / ROCKSDB_FOLDER)))))
    return True  # who reads the database tells what cannot be read


def _layout(storage: Storage, root: Path, conf: BrokerConf, *, is_separate: bool) -> Layout:
    said = conf.queues_in_both or conf.queues_in_rocksdb
    if isinstance(storage, RemoteStorage) and not (said or is_separate or has_database(storage, root / CONSUMEQUEUE)):
        return Layout.FILES  # each listing is a request, and no database of a remote store is read
    try:
        entries = storage.kinds(str(root / CONSUMEQUEUE))
    except OSError as error:
        if not (is_separate or said):
            return Layout.FILES  # who lists the queues tells what cannot be read
        raise Unreadable(f"cannot be read: {error.strerror}", path=str(root / CONSUMEQUEUE)) from error
    files = [name for name, kind in entries if kind is Kind.FILE]
    if conf.queues_in_both or any(kind is Kind.DIRECTORY for _, kind in entries):
        is_sure = said or is_separate or any(name.startswith(_SURE_SIGNS) for name in files)
        return Layout.COMBINED if is_sure else Layout.FILES
    # the database may be gone, for the next start to make it anew: its LOCK stays, or the configuration's databases
    by_config = not conf.path and any(has_database(storage, root / CONFIG / name) for name in (V1[0], SINGLE[0]))
    in_rocksdb = is_separate or conf.queues_in_rocksdb or by_config or any(map(is_rocksdb_name, files))
    return Layout.ROCKSDB if in_rocksdb else Layout.FILES


def _config_databases(storage: Storage, root: Path, conf: BrokerConf, layout: Layout) -> tuple[str, ...]:
    try:
        return config_layout(storage, root / CONFIG, conf, rocksdb=layout is Layout.ROCKSDB)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}", path=str(error.filename or root)) from error


def _no_store(what: str, storage: Storage, root: Path) -> NotAStore:
    """Return the error, with the store that is in the folder or bag, or around it."""
    hint, inside = "", list[Path]()
    with suppress(OSError):
        inside = [one / name for one in (root, root / "data") for name, _ in storage.kinds(str(one))[:NEAR_MAX]]
    for path in (*inside, *root.absolute().parents):
        with suppress(OSError):
            near = storage_of(path, follow_links=storage.follow_links)
            if near.entry(path / COMMITLOG).kind is Kind.DIRECTORY:
                hint = f"try {root_text(path)}"
                break
    return NotAStore(what, path=root_text(root), hint=hint)
