"""The databases of a store that a broker reads, shown as files.

With storeType=defaultRocksDB, queues and configuration are in RocksDB; with configManagerVersion=v2, the configuration
is, also beside queues in files (BrokerController of 5.5.0).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqctl.logfile.system.rocksdb import Database, has_database
from rmqctl.store.rocksdb.config_files import LAYOUTS, OFFSETS, SINGLE, TOPICS, V1, V2, ConfigFiles
from rmqctl.store.rocksdb.queue_files import USUAL_FILE_SIZE, QueueFiles

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.shown_storage import ShownFiles
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.broker_conf import BrokerConf


def queue_files(storage: Storage, folder: Path, conf: BrokerConf) -> QueueFiles | None:
    """Return the queue files for the database in `folder`, if there is one."""
    if not has_database(storage, folder):
        return None
    return QueueFiles(partial(Database, storage, folder), conf.consumequeue_file_size or USUAL_FILE_SIZE)


def config_files(storage: Storage, folder: Path, layout: tuple[str, ...]) -> dict[Path, ShownFiles]:
    """Return the JSON files for a layout of databases in `folder`, config/."""
    return (
        {folder: ConfigFiles(lambda name: Database(storage, folder / name, skips_damaged=True), layout)}
        if layout
        else {}
    )


def config_layout(storage: Storage, folder: Path, conf: BrokerConf, *, rocksdb: bool) -> tuple[str, ...]:
    """Return which of LAYOUTS a broker reads; () if it reads files.

    `rocksdb` is True for a broker with queues in RocksDB. What broker.conf does not say, the files do: the layout that
    was written to last. Raises OSError.
    """
    found = [layout for layout in LAYOUTS if any(has_database(storage, folder / name) for name in layout)]
    if conf.path:
        of_rocksdb = SINGLE if conf.single_config_database else V1
        said = V2 if conf.config_in_v2 else of_rocksdb if rocksdb else ()
        return said if said in found else ()
    candidates = [layout for layout in found if rocksdb or layout == V2]
    written = {layout: max(_written(storage, folder / name) for name in layout) for layout in candidates}
    files = 0 if rocksdb else max(storage.entry(folder / name).mtime for name in (TOPICS, OFFSETS))
    newest = max(written, key=lambda layout: written[layout], default=None)
    return newest if newest is not None and written[newest] >= files else ()


def _written(storage: Storage, folder: Path) -> int:
    return max((entry.mtime for entry in storage.listing(folder) if not entry.name.startswith("LOG")), default=0)
