"""The index of a broker with indexRocksDBEnable, in rocksdbstore/.

A broker asks it only with indexFileReadEnable=false. It finds no message without a UNIQ_KEY.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from rmqctl.store.rocksdb.message_rows import KEY, LAST_OFFSET, UNIQUE, checkpoint_of, hours, index_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.system.rocksdb import Database
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.config.store_path import StorePath
    from rmqctl.store.rocksdb.message_rows import IndexRow


class IndexDatabase:
    """The index in `database`. The methods raise OSError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(self) -> Iterator[IndexRow]:
        """Yield all rows, sorted by hour, topic, kind and text."""
        return index_rows(self._database)

    def of_key(self, topic: str, key: str) -> Iterator[IndexRow]:
        """Yield the rows for a key, which may be a UNIQ_KEY."""
        for hour in hours(self._database):
            for kind in (KEY, UNIQUE):
                prefix = hour + f"@{topic}@{kind}@{key}@".encode(errors="replace")
                yield from (row for row in index_rows(self._database, prefix) if row.text == key)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The physical offsets of the first and the last message of the index."""
        of_hour = index_rows(self._database, next(hours(self._database), b""))
        first = min((row.physical_offset for row in of_hour), default=0)
        return first, max(first, checkpoint_of(self._database, LAST_OFFSET) or 0)


def index_in_database(path: StorePath, conf: BrokerConf, *, has_files: bool) -> IndexDatabase | None:
    """Return the index in the database if it is in use.

    It is if broker.conf says so, or if there are no index files and the database has messages. Raises OSError.
    """
    return index_database(path) if conf.index_in_database or not has_files else None


def index_database(path: StorePath) -> IndexDatabase | None:
    """Return the index in the database, in use or not; None if it is empty.

    Raises OSError.
    """
    database = path.message_database
    if database is None or next(hours(database), None) is None:
        return None
    return IndexDatabase(database)
