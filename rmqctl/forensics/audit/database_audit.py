"""Checks the files that RocksDB appends to, in each database of a store.

A broker starts on a damaged one, and lacks the rows that follow the damage: RocksDB reports no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.logfile.system.rocksdb import damaged_logs, has_database
from rmqctl.store.config.store_path import CONFIG, SIGN_OF_5_4
from rmqctl.store.read.consumers.pop_checkpoints import KV_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


def audit_databases(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each damaged MANIFEST and write-ahead log."""
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
