"""Checks the files that RocksDB appends to, and rows that no other audit reads.

A broker starts on a damaged one of these files, and lacks the rows that follow the damage: RocksDB reports no error.
The rows are half messages in rocksdbstore/ (transRocksDBEnable), compared with the log, and users and acls in config/.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from rmqctl.forensics.finding import Finding
from rmqctl.format.properties import REAL_TOPIC, UNIQ_KEY
from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY, Database, damaged_logs, has_database
from rmqctl.store.config.store_path import AUTH_DATABASES, CONFIG, KV_FOLDER, SIGN_OF_5_4
from rmqctl.store.read.commit_log import message_of
from rmqctl.store.read.consumers.pop_checkpoints import KV_FAMILY, kv_checkpoints
from rmqctl.store.rocksdb.config_files import FAMILIES
from rmqctl.store.rocksdb.message_rows import TIMER, TRANS, half_rows
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.read.read_only_store import ReadOnlyStore

READ_FAMILIES = frozenset({DEFAULT_FAMILY, KV_FAMILY, TIMER, TRANS, *FAMILIES.values()})  # by other audits


def audit_databases(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each damaged MANIFEST and write-ahead log.

    And one for each database of which rows are lost that no other audit reads.
    """
    disk = store.storage.of_disk
    of_config = [f"{CONFIG}/{name}" for name in (*store.path.config_databases, *AUTH_DATABASES)]
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
        if name == KV_FOLDER and (why := _popped(store)):
            yield Finding("unreadable", name, None, why)
        elif store.lock_holder() is None and has_database(disk, folder):
            yield from _lost_rows(disk, name, folder)


def _popped(store: ReadOnlyStore) -> str:
    # asked of 5.5.0: "PopConsumerStore init error"
    problems: list[str] = []
    deque(kv_checkpoints(store, problems), maxlen=0)
    return f"no broker with popConsumerKVServiceInit starts: {problems[0]}" if problems else ""


def _lost_rows(disk: Storage, name: str, folder: Path) -> Iterator[Finding]:
    # asked of 5.5.0: it does not start if the data version of the groups cannot be read, and starts without the offsets
    # if MANIFEST was cut
    try:
        database = Database(disk, folder)
    except OSError:  # the audits of its content say why
        return
    try:
        database.read_besides(READ_FAMILIES)
    except OSError as error:
        yield Finding("unreadable", name, None, f"cannot be read: {error.strerror}")
    if unnamed := database.unnamed_tables():
        what = f"MANIFEST does not name {', '.join(unnamed)}: a broker starts without the rows there"
        yield Finding("database-log", name, None, what)
    if not any(found.endswith(".log") for found in disk.names(folder)):  # RocksDB keeps one, also when it is closed
        what = "it has no write-ahead log (.log): a broker starts without the rows that were in it"
        yield Finding("database-log", name, None, what)


def audit_database_rows(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings on half messages, users and acls. Raises OSError."""
    database, log = store.path.message_database, store.commit_log
    wrong = []
    for row in half_rows(database) if database is not None else ():
        message = message_of(log.at(row.physical_offset)) if row.physical_offset >= log.min_offset else None
        named = (message.size, message.properties.get(REAL_TOPIC), message.properties.get(UNIQ_KEY)) if message else ()
        if named != (row.size, row.topic, row.unique_key) and row.physical_offset >= log.min_offset:
            wrong.append(row.physical_offset)
    detail = f"{counted(len(wrong), 'row')} of half messages lead to no such message"
    if wrong:
        yield Finding("half-database-dangling", SIGN_OF_5_4, wrong[0], detail, count=len(wrong))
    for name in AUTH_DATABASES if store.path.reads_databases else ():
        if has_database(store.storage, folder := store.path.part(CONFIG) / name):
            yield from _auth_rows(Database(store.storage, folder, skips_damaged=True), f"{CONFIG}/{name}")


def _auth_rows(database: Database, path: str) -> Iterator[Finding]:
    # no finding shows a row: users have their passwords in it
    for number, (_, value) in enumerate(database.rows()):
        try:
            msgspec.json.decode(value, type=dict[str, object])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield Finding("unreadable", path, None, f"row {number} is no JSON object")
