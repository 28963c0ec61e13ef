"""config/timercheck of 5.x, a file of 4096 bytes.

{table}

Brokers up to 5.0.0 write the first 32 bytes.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.layout import Field, Layout
from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY, has_rows
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import config_file
from rmqctl.store.config.store_path import CONFIG, SIGN_OF_5_4, TIMER_LOG
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.rocksdb.message_rows import TIMER, TRANS

if TYPE_CHECKING:
    from rmqctl.logfile.system.rocksdb import Database
    from rmqctl.store.read.read_only_store import ReadOnlyStore

TIMER_CHECK = Layout(
    "timercheck",
    (
        Field("lastReadTimeMs", "q", "messages due before it are delivered, ms since 1970"),
        Field("lastTimerLogFlushPos", "q", "end of the flushed part of timerlog"),
        Field("lastTimerQueueOffset", "q", "units of the timer's queue before it have their unit in timerlog"),
        Field("masterTimerQueueOffset", "q", "the same on the master; on a master the same value"),
        Field("stateVersion", "q"),
        Field("timestamp", "q", "ms since 1970"),
        Field("counter", "q"),
    ),
)
TIMER_CHECK_SIZE = 4096
TIMER_CHECK_PATH = f"{CONFIG}/{config_file.TIMER_CHECK}"
if TIMER_CHECK.size != 56:
    raise AssertionError("56 bytes of timercheck are used")
__doc__ = (__doc__ or "").format(table=TIMER_CHECK.table())


class TimerCheck(NamedTuple):
    """The fields of config/timercheck."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


def has_timer(store: ReadOnlyStore) -> bool:
    """Return whether a broker kept timer messages of this store.

    If no database shows it, timerlog has files, or timercheck a lastTimerLogFlushPos, or the database in rocksdbstore/
    has nothing and timercheck or the timer's queue exists. Raises OSError.
    """
    storage, root = store.storage, store.path.root
    if timer_database(store) is not None:
        return True
    folder = storage.entry(root / TIMER_LOG)
    if folder.kind is not Kind.MISSING and (folder.kind is not Kind.DIRECTORY or storage.listing(folder.path)):
        return True
    if timer_check(store).last_timer_log_flush_pos != 0:
        return True
    is_left = storage.entry(root / TIMER_CHECK_PATH).kind is Kind.FILE or store.queue(TIMER_TOPIC, 0) is not None
    return is_left and not has_rows(storage, root / SIGN_OF_5_4)


def timer_database(store: ReadOnlyStore) -> Database | None:
    """Return the database of a broker with timerRocksDBEnable (5.4 and later).

    What broker.conf does not say, the rows of timers do. Raises OSError.
    """
    said = store.conf.timers_in_database
    database = store.path.message_database if said is not False else None
    is_used = said or (database is not None and next(database.rows(TIMER), None) is not None)
    return database if is_used else None


def has_only_timers(store: ReadOnlyStore) -> bool:
    """Return whether the timers' database has no rows of index and transactions.

    A broker makes them only when it dispatches the log again. Raises OSError.
    """
    database = timer_database(store)
    return database is not None and all(next(database.rows(one), None) is None for one in (DEFAULT_FAMILY, TRANS))


def timer_check(store: ReadOnlyStore) -> TimerCheck:
    """Return the content of timercheck. Raises OSError.

    What a short file lacks is 0, as brokers map the file at its full size; all fields are, if it does not exist.
    """
    entry = store.storage.entry(store.path.root / TIMER_CHECK_PATH)
    if entry.kind not in (Kind.FILE, Kind.MISSING):
        raise OSError(errno.EINVAL, f"{entry.kind.value}, not a file", str(entry.path))
    raw = store.storage.read_start(entry.path, TIMER_CHECK.size) if entry.kind is Kind.FILE else b""
    return TimerCheck._make(TIMER_CHECK.struct.unpack_from(raw.ljust(TIMER_CHECK.size, b"\0")))
