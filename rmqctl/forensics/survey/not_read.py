"""Name what lies in a store's folder, and rmqctl does not read.

A store without findings is whole as far as rmqctl reads it: the log, queues, index, checkpoint, the JSON files of
config/, the timer's files and those of compacted topics, also where queues, index, configuration and timers are in
RocksDB. Brokers of 5.x also have other databases. A user may have moved other files into the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME
from rmqctl.logfile.system.rocksdb import has_database, has_rows
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import (
    CONFIG_FILES,
    CONFIG_FILES_OF_5,
    QUEUE_MAPPINGS_CONFIG,
    REQUEST_MODES_CONFIG,
    TIMER_CHECK,
)
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.journal.journals import RMQCTL_FOLDER
from rmqctl.store.read.consumers.pop_checkpoints import KV_FOLDER
from rmqctl.store.rocksdb.message_rows import TRANS
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmqctl.store.read.read_only_store import ReadOnlyStore

QUEUES_AND_INDEX = (*store_path.QUEUE_PARTS, store_path.INDEX)
FOLDERS_MAX = 1000  # entries that are looked at to see whether a folder has bytes
NAMED = 8
TIMER_FILES = (store_path.TIMER_LOG, store_path.TIMER_WHEEL)
_READ = frozenset(
    {*QUEUES_AND_INDEX, *store_path.SINGLE_FILES, store_path.CONFIG, store_path.BROKER_IDENTITY, store_path.MIRROR}
    | {RECEIPTS_NAME, RMQCTL_FOLDER, *TIMER_FILES, store_path.COMPACTION}
)
_READ_IN_CONFIG = frozenset(
    {*CONFIG_FILES, *CONFIG_FILES_OF_5, TIMER_CHECK, QUEUE_MAPPINGS_CONFIG, REQUEST_MODES_CONFIG}
)
_DATABASES = frozenset({store_path.SIGN_OF_5_4, store_path.ROCKSDB_FOLDER, KV_FOLDER})


class NotRead(NamedTuple):
    """A file or folder that `verify` does not read. `path` is relative to the store."""

    path: str
    detail: str

    @property
    def is_missing(self) -> bool:
        """Return whether the file should exist, and does not."""
        return self.detail == _MISSING


def not_read(store: ReadOnlyStore) -> list[NotRead]:
    """Return what `verify` does not read in the folder of a store, at any level.

    Folders without bytes are left out. Files of the timers that should exist, but do not, come last. What could not be
    listed is in `foreign` of the store.
    """
    try:
        return [*_beside(store), *_in_config(store), *_missing_timer_files(store)]
    except OSError:  # the audits have said which folder, and why
        return []


def in_words(found: Sequence[NotRead]) -> str:
    """Return the paths as one line of text, or "" for none.

    Files that are missing are named as missing.
    """
    missing = [one.path for one in found if one.is_missing]
    lying = [quoted(one.path) for one in found if not one.is_missing]
    more = f" and {len(lying) - NAMED} more" if len(lying) > NAMED else ""
    words = [f"not read: {', '.join(lying[:NAMED])}{more}"] if lying else []
    return "; ".join([*words, *([f"missing: {', '.join(missing)} ({_MISSING})"] if missing else [])])


_MISSING = f"although {store_path.CONFIG}/{TIMER_CHECK} and {TIMER_TOPIC} exist"


def _beside(store: ReadOnlyStore) -> Iterator[NotRead]:
    """Yield what lies beside the parts of the store that rmqctl knows."""
    path, storage = store.path, store.storage
    logs = {folder.relative_to(path.root).parts[0] for folder in path.commitlogs if folder.is_relative_to(path.root)}
    for entry in storage.listing(path.root):
        name = entry.name
        if name in logs or not _has_bytes(store, entry.path, entry.kind):
            continue
        if name == store_path.CONSUMEQUEUE and not path.reads_queues:
            yield NotRead(name, "its queues in RocksDB")
        elif name == path.queue_database_folder and not path.reads_databases:
            if has_database(storage, entry.path):
                yield NotRead(name, "its queues in RocksDB; those in files are read")
        elif name == store_path.SIGN_OF_5_4 and path.reads_databases:
            if _has_half_messages(store):
                yield NotRead(name, "its half messages (RocksDB)")
        elif name not in (*_READ, path.queue_database_folder) and not (
            name == KV_FOLDER and entry.kind is Kind.DIRECTORY and path.reads_databases
        ):
            yield NotRead(name, _what(name))


def _has_half_messages(store: ReadOnlyStore) -> bool:
    try:
        database = store.path.message_database
        return database is not None and next(database.rows(TRANS), None) is not None
    except OSError:  # the audits have said why
        return False


def _in_config(store: ReadOnlyStore) -> Iterator[NotRead]:
    folder = store.path.part(store_path.CONFIG)
    for entry in store.storage.listing(folder):
        is_read = store.path.reads_databases and entry.name in store.path.config_databases
        if is_read or entry.name.removesuffix(".bak") in _READ_IN_CONFIG:
            continue
        if not _has_bytes(store, entry.path, entry.kind):
            continue
        yield NotRead(f"{store_path.CONFIG}/{entry.name}", _what(entry.name))


def _missing_timer_files(store: ReadOnlyStore) -> Iterator[NotRead]:
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
    yield from (NotRead(name, _MISSING) for name in missing)


def _what(name: str) -> str:
    return "a database (RocksDB)" if name in _DATABASES else "not known to rmqctl"


def _has_bytes(store: ReadOnlyStore, path: Path, kind: Kind) -> bool:
    """Return whether a file, or a file below a folder, has bytes.

    What is neither a file nor a folder counts, too, and so does what lies deep.
    """
    waiting = [(path, kind)]
    for _ in range(FOLDERS_MAX):
        if not waiting:
            return False
        path, kind = waiting.pop()
        if kind is Kind.DIRECTORY:
            waiting += [(entry.path, entry.kind) for entry in store.storage.listing(path)]
        elif kind is not Kind.FILE or store.storage.entry(path).size > 0:
            return True
    return True
