"""Name the parts of a store, and what of them rmqctl does not read.

A store without findings is whole as far as rmqctl reads it: the log, queues, index, checkpoint, configuration, timers,
popped messages, compacted topics, users and acls, in files or in RocksDB. Brokers of 5.x can also have tiered storage.
A user may have moved other files into the folder.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME
from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY, has_database, has_rows
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import (
    CONFIG_FILES,
    CONFIG_FILES_OF_5,
    QUEUE_MAPPINGS_CONFIG,
    REQUEST_MODES_CONFIG,
    TIMER_CHECK,
)
from rmqctl.store.config.store_path import Layout
from rmqctl.store.config.topics import REVIVE_PREFIX, TIMER_TOPIC
from rmqctl.store.journal.journals import RMQCTL_FOLDER
from rmqctl.store.rocksdb.config_files import LAYOUTS, SHOWN
from rmqctl.store.rocksdb.message_rows import TIMER, TRANS
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.read.read_only_store import ReadOnlyStore

FOLDERS_MAX = 1000  # entries that are looked at to see whether a folder has bytes
NAMED = 8
TIMER_FILES = (store_path.TIMER_LOG, store_path.TIMER_WHEEL)
TIERED = {"tieredStore", "tiered_index_file", "tieredStoreMetadata.json"}  # the first as tieredStoreFilePath names it
_UNNAMED = {
    *store_path.SINGLE_FILES,
    *(store_path.MIRROR, store_path.BROKER_CONF, RECEIPTS_NAME, RMQCTL_FOLDER, store_path.CONFIG),
} - {store_path.EPOCH_FILE}
_READ = {
    store_path.CONSUMEQUEUE: "queues",
    store_path.CONSUMEQUEUE_EXT: "queue extensions",
    store_path.BATCHCONSUMEQUEUE: "batch queues",
    store_path.INDEX: "index",
    store_path.COMPACTION: "compacted topics",
    **dict.fromkeys((*TIMER_FILES, TIMER_CHECK), "timers"),
    **dict.fromkeys((store_path.EPOCH_FILE, store_path.BROKER_IDENTITY), "HA"),
    QUEUE_MAPPINGS_CONFIG: "static topics",
    **dict.fromkeys((*CONFIG_FILES, *CONFIG_FILES_OF_5, REQUEST_MODES_CONFIG), "configuration"),
}
_DATABASES = dict.fromkeys(chain(*LAYOUTS), "configuration") | {name: name for name in store_path.AUTH_DATABASES}
_FAMILIES = {DEFAULT_FAMILY: "index", TIMER: "timers", TRANS: "half messages"}


class StorePart(NamedTuple):
    """A part of a store: files, or a database. `path` is relative to the store."""

    path: str
    name: str
    detail: str = ""  # why rmqctl does not read it; "" if it does
    database: bool = False

    @property
    def is_missing(self) -> bool:
        """Return whether the file should exist, and does not."""
        return self.detail == _MISSING


def parts(store: ReadOnlyStore) -> list[StorePart]:
    """Return the parts of a store, but not the single files that each store has.

    Folders without bytes are left out. Files of the timers that should exist, but do not, come last. What could not be
    listed is in `foreign` of the store.
    """
    try:
        return [*_beside(store), *_in_config(store), *_missing_timer_files(store)]
    except OSError:  # the audits have said which folder, and why
        return []


def not_read(store: ReadOnlyStore) -> list[StorePart]:
    """Return what `verify` does not read in the folder of a store, at any level."""
    return [part for part in parts(store) if part.detail]


def in_words(found: Sequence[StorePart]) -> str:
    """Return the paths as one line of text, or "" for none.

    Files that are missing are named as missing.
    """
    missing = [one.path for one in found if one.is_missing]
    lying = [quoted(one.path) for one in found if not one.is_missing]
    more = f" and {len(lying) - NAMED} more" if len(lying) > NAMED else ""
    words = [f"not read: {', '.join(lying[:NAMED])}{more}"] if lying else []
    return "; ".join([*words, *([f"missing: {', '.join(missing)} ({_MISSING})"] if missing else [])])


_MISSING = f"although {store_path.CONFIG}/{TIMER_CHECK} and {TIMER_TOPIC} exist"
_UNKNOWN = "not known to rmqctl"
_TIERED = "messages that were moved there are not read"


def _beside(store: ReadOnlyStore) -> Iterator[StorePart]:
    path, storage = store.path, store.storage.of_disk
    logs = {folder.relative_to(path.root).parts[0] for folder in path.commitlogs if folder.is_relative_to(path.root)}
    for folder in path.commitlogs:
        yield StorePart(storage.display(folder), "DLedger log" if folder == path.entries_in else "commit log")
    for entry in storage.listing(path.root):
        is_told = entry.name in logs | _UNNAMED or entry.path in path.linked_parts
        if not is_told and _has_bytes(storage, entry.path, entry.kind):
            is_folder = entry.kind is Kind.DIRECTORY
            yield from _folder(store, entry.name) if is_folder else [_file(entry.name, entry.name)]
    revive = (topic for topic in sorted(store.queue_topics) if topic.startswith(REVIVE_PREFIX))
    yield from (StorePart(f"{store_path.CONSUMEQUEUE}/{topic}", "POP") for topic in revive)


def _file(name: str, where: str) -> StorePart:
    if name in _READ:
        return StorePart(where, _READ[name])
    return StorePart(where, *(("tiered storage", _TIERED) if name in TIERED else ("", _UNKNOWN)))


def _folder(store: ReadOnlyStore, name: str) -> Iterator[StorePart]:
    path, disk = store.path, store.storage.of_disk
    why, is_combined = path.unread_databases, path.layout is Layout.COMBINED
    has_queues = path.layout is Layout.ROCKSDB or (is_combined and has_database(disk, path.part(name)))
    if has_queues := has_queues and name == path.queue_database_folder:
        yield StorePart(name, "queues", why, database=True)
    if name == store_path.SIGN_OF_5_4:
        if has_rows(disk, path.part(name)):
            yield from (StorePart(name, what, why, database=True) for what in _in_message_database(store))
    elif name == store_path.KV_FOLDER:
        yield StorePart(name, "POP", why, database=True)
    elif not has_queues or (is_combined and name == store_path.CONSUMEQUEUE):
        yield _file(name, name)


def _in_message_database(store: ReadOnlyStore) -> list[str]:
    try:
        database = store.path.message_database
        found = [name for family, name in _FAMILIES.items() if database and next(database.rows(family), None)]
    except OSError:  # the audits have said why
        found = []
    return found or list(_FAMILIES.values())


def _in_config(store: ReadOnlyStore) -> Iterator[StorePart]:
    path, storage = store.path, store.storage.of_disk
    used, named = path.config_databases, set()
    others = f"the broker reads {f'{store_path.CONFIG}/{used[0]}' if used else 'the files'} instead"
    for entry in storage.listing(path.part(store_path.CONFIG)):
        name = entry.name.removesuffix(".bak")
        where = f"{store_path.CONFIG}/{entry.name}"
        if entry.path in path.linked_parts or not _has_bytes(storage, entry.path, entry.kind):
            continue
        if name in _DATABASES and entry.kind is Kind.DIRECTORY:
            why = others if name not in (*used, *store_path.AUTH_DATABASES) else ""
            yield StorePart(where, _DATABASES[name], why or path.unread_databases, database=True)
        elif name in _READ:
            if used and name in SHOWN:
                yield StorePart(where, _READ[name], others)
            elif _READ[name] not in named:
                named.add(_READ[name])
                yield StorePart(store_path.CONFIG if _READ[name] == "configuration" else where, _READ[name])
        else:
            yield _file(name, where)


def _missing_timer_files(store: ReadOnlyStore) -> Iterator[StorePart]:
    """Yield the files that lead to waiting timers, if they do not exist.

    A broker with timerRocksDBEnable has its timers in the database.
    """
    storage, root = store.storage, store.path.root
    in_use = storage.entry(store.path.part(f"{store_path.CONFIG}/{TIMER_CHECK}")).kind is Kind.FILE
    if not in_use or storage.entry(root / store_path.CONSUMEQUEUE / TIMER_TOPIC).kind is not Kind.DIRECTORY:
        return
    if store.conf.timers_in_database or has_rows(storage, root / store_path.SIGN_OF_5_4):
        return
    missing = (name for name in TIMER_FILES if storage.entry(root / name).kind is Kind.MISSING)
    yield from (StorePart(name, "timers", _MISSING) for name in missing)


def _has_bytes(storage: Storage, path: Path, kind: Kind) -> bool:
    """Return whether a file, or a file below a folder, has bytes.

    What is neither a file nor a folder counts, too, and so does what lies deep.
    """
    waiting = [(path, kind)]
    for _ in range(FOLDERS_MAX):
        if not waiting:
            return False
        path, kind = waiting.pop()
        if kind is Kind.DIRECTORY:
            waiting += [(entry.path, entry.kind) for entry in storage.listing(path)]
        elif kind is not Kind.FILE or storage.entry(path).size > 0:
            return True
    return True
