"""Checks the files that RocksDB appends to, and what no other audit reads.

A broker starts on a damaged one of these files, and lacks the rows that follow the damage: RocksDB reports no error.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY, Database, damaged_logs, has_database
from rmqctl.store.config.store_path import CONFIG, SIGN_OF_5_4
from rmqctl.store.read.consumers.pop_checkpoints import KV_FAMILY, KV_FOLDER, kv_checkpoints
from rmqctl.store.rocksdb.config_files import FAMILIES
from rmqctl.store.rocksdb.message_rows import TIMER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.store.read.read_only_store import ReadOnlyStore

READ_FAMILIES = frozenset({DEFAULT_FAMILY, KV_FAMILY, TIMER, *FAMILIES.values()})  # by other audits


def audit_databases(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each damaged MANIFEST and write-ahead log.

    And one for each database of which rows are lost that no other audit reads.
    """
    disk = store.storage.of_disk
    of_config = [f"{CONFIG}/{name}" for name in store.path.config_databases]
    names = (store.path.queue_database_folder, SIGN_OF_5_4, KV_FOLDER, *of_config)
    for name in names if store.path.reads_databases else ():
        folder = store.path.part(name)
        try:
            damaged = list(damaged_logs(disk, folder)) if has_database(disk, folder) else []
        except OSError as error:
            yield Finding("unreadable", name, None, f"cannot be read: {error.strerror}")
            continue
        for file, position in damaged:
            what = "is damaged: a broker starts, and the database lacks what was written from here on"
            yield Finding("database-log", f"{name}/{file}", None, what, file_offset=position)
        if damaged or name == store.path.queue_database_folder:
            continue
        if why := (_popped(store) if name == KV_FOLDER else "") or _unread(store, folder):
            yield Finding("unreadable", name, None, why)


def _popped(store: ReadOnlyStore) -> str:
    # asked of 5.5.0: "PopConsumerStore init error"
    problems: list[str] = []
    deque(kv_checkpoints(store, problems), maxlen=0)
    return f"no broker with popConsumerKVServiceInit starts: {problems[0]}" if problems else ""


def _unread(store: ReadOnlyStore, folder: Path) -> str:
    # asked of 5.5.0: it does not start if the data version of the groups cannot be read, and starts without the offsets
    # if MANIFEST was cut; the log shows what queues lack
    disk = store.storage.of_disk
    if store.lock_holder() is not None or not has_database(disk, folder):
        return ""
    try:
        return Database(disk, folder).damage_besides(READ_FAMILIES)
    except OSError:  # the audits of its content say why
        return ""
