"""Read a RocksDB database of a store, by rocksdict (the extra `rocksdb`).

RocksDB writes to the folder that it opens, even for reading. So it opens a scratch folder with links to the database's
files, but not to LOCK and LOG: the store stays as it is, also beside a running broker.
"""

from __future__ import annotations

import errno
import re
import signal
import threading
import time
from collections import deque
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.logfile.system.rocksdb_log import BLOCK, endless_at, first_damage
from rmqctl.logfile.system.storage import Entry, Kind, Storage
from rmqctl.scratch import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

CURRENT = "CURRENT"  # each database has this file
DEFAULT_FAMILY = "default"
OF_ROCKSDB = "RocksDB: "  # begins the text of each error
# what a database is read from; rocksdict writes a file of its own, and must not find one of the store in its place
_READ = re.compile(r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-[0-9]+|[0-9]+\.(sst|log|blob)")
_APPENDED = re.compile(r"MANIFEST-[0-9]+|[0-9]+\.log")
_BITS_OF_BROKER = 16
_PART = 32 * BLOCK  # bytes that are read at once
_LOG_MAX = 1024 * 1024 * 1024  # bytes; RocksDB begins a new MANIFEST there, and flushes before a log is so large
_TRIES, _PAUSE_S = 5, 0.1  # a running broker may delete a file between the listing and the opening


def can_read_databases() -> bool:
    """Return whether the extra `rocksdb` is installed."""
    return find_spec("rocksdict") is not None


def has_database(storage: Storage, folder: Path) -> bool:
    """Return whether a folder has a database. Raises OSError."""
    return storage.entry(folder / CURRENT).kind is Kind.FILE


def has_rows(storage: Storage, folder: Path) -> bool:
    """Return whether a database may have rows, by its files. Raises OSError."""
    return any(entry.size and entry.name.endswith((".sst", ".log")) for entry in storage.listing(folder))


def damaged_logs(storage: Storage, folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the names of a damaged MANIFEST and logs, and where the damage begins.

    RocksDB opens such a database, and has no row of what follows. Raises OSError.
    """
    for entry in _appended(storage, folder):
        damage = first_damage(_parts(storage, entry))
        if damage is not None:
            yield entry.name, damage


class Database:
    """The database in `folder` as it is when it is opened.

    All its tables are open from then on: a broker may delete their files. With `skips_damaged`, what follows a damaged
    record of a write-ahead log is read, as a broker reads its configuration; else it is not, as a broker reads all
    other databases (ConfigHelper and RocksDBOptionsFactory of 5.5.0). The methods raise OSError with RocksDB's text,
    for example for a damaged file.
    """

    def __init__(self, storage: Storage, folder: Path, *, skips_damaged: bool = False) -> None:
        self._folder, self._skips_damaged = folder, skips_damaged
        for left in reversed(range(_TRIES)):
            try:
                self._open(storage)
            except OSError:
                if not left:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def read_besides(self, read: Container[str]) -> None:
        """Read all rows of the families that are not in `read`."""
        for family in self._families:
            if family not in read:
                deque(self.rows(family), maxlen=0)

    def unnamed_tables(self) -> list[str]:
        """Return the tables that MANIFEST does not name.

        If it was cut, their rows are lost; beside a running broker, they can be old or new ones.
        """
        named = {table["name"].removeprefix("/") for table in self._database.live_files()}
        return [name for name in self._listed if name.endswith(".sst") and name not in named]

    def rows(
        self, family: str = DEFAULT_FAMILY, prefix: bytes = b"", start: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys with a prefix, and their values, sorted by key, from `start` on.

        A family that does not exist has no rows.
        """
        if family not in self._families:
            return
        with self._named():
            rows = self._families[family].iter()
            rows.seek(start or prefix)
        while True:
            with self._named():
                if not rows.valid():
                    rows.status()
                    return
                key, value = bytes(rows.key()), bytes(rows.value())
                rows.next()
            if not key.startswith(prefix):
                return
            yield key, value

    def _open(self, storage: Storage) -> None:
        from tempfile import TemporaryDirectory  # noqa: TID251 -- in a folder that is given

        import rocksdict

        for entry in _appended(storage, self._folder):
            endless = endless_at(_parts(storage, entry))
            if endless is not None:
                raise OSError(errno.EIO, f"{OF_ROCKSDB}{entry.name} is damaged at byte {endless}", str(self._folder))
        raw, tables = rocksdict.Options(raw_mode=True), rocksdict.BlockBasedOptions()
        if self._skips_damaged:
            raw.set_wal_recovery_mode(rocksdict.DBRecoveryMode.skip_any_corrupted_record())
        tables.set_bloom_filter(_BITS_OF_BROKER, block_based=False)  # else no damage to a filter is found
        raw.set_block_based_table_factory(tables)
        self._listed: list[str] = []
        with TemporaryDirectory(dir=temporary_folder(), ignore_cleanup_errors=True) as links:
            for entry in storage.listing(self._folder):
                if entry.kind is Kind.FILE and _READ.fullmatch(entry.name):
                    Path(links, entry.name).symlink_to(entry.path.absolute())
                    self._listed.append(entry.name)
            self._links = links
            with self._named(), _ended_by_signals():
                names = rocksdict.Rdict.list_cf(links, raw)
                read_only = rocksdict.AccessType.read_only()
                self._database = rocksdict.Rdict(links, raw, dict.fromkeys(names, raw), read_only)
                self._families = {name: self._database.get_column_family(name) for name in names}

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if type(error) is not Exception:  # rocksdict raises no other
                raise
            text = str(error).replace(f"{self._links}/", "")
            raise OSError(errno.EIO, f"{OF_ROCKSDB}{text}", str(self._folder)) from error


def _appended(storage: Storage, folder: Path) -> list[Entry]:
    found = [one for one in storage.listing(folder) if one.kind is Kind.FILE and _APPENDED.fullmatch(one.name)]
    for entry in found:
        if entry.size > _LOG_MAX:
            raise OSError(errno.EFBIG, f"{OF_ROCKSDB}{entry.name} is larger than any of RocksDB", str(folder))
    return found


def _parts(storage: Storage, entry: Entry) -> Iterator[tuple[int, bytes]]:
    descriptor, at = storage.open(entry.path), 0
    try:
        while at < entry.size and (data := storage.next_data(descriptor, at)) is not None:
            at = max(at, data // BLOCK * BLOCK)
            part = storage.read(descriptor, at, min(_PART, entry.size - at))
            if not part:
                return
            yield at, part
            at += len(part)
    finally:
        storage.close(descriptor)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    # a damaged database can keep RocksDB busy for ever, and Python hears no signal meanwhile
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
