"""A store as another broker sees it: without what this broker does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.forensics.preflight.option_names import is_known
from rmqctl.logfile.system.hiding_storage import HidingStorage
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.broker_conf import SIZE_KEYS
from rmqctl.store.config.file_sizes import TIMER_LOG_FILE_SIZE, conf_as_read, usual_size
from rmqctl.store.config.store_path import CONFIG, CONSUMEQUEUE, DLEDGER_PREFIX, ROCKSDB_FOLDER, Layout, is_rocksdb_name
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.rocksdb.config_files import SINGLE, V1, V2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.config.broker_conf import BrokerConf

# a version knows a layout if it takes these names in broker.conf
OF_DLEDGER, OF_ROCKSDB, OF_BOTH = (
    "enableDLegerCommitLog",
    "cleanRocksDBDirtyCQIntervalMin",
    "rocksdbCQDoubleWriteEnable",
)
OF_CONFIG = {V1: "storeType", V2: "configManagerVersion", SINGLE: "useSingleRocksDBForAllConfigs"}


def seen_by(store: ReadOnlyStore, conf: BrokerConf, version: str) -> tuple[ReadOnlyStore, frozenset[str]]:
    """Return the store as a broker sees it, and what the broker does not see.

    It is a broker of `version` with `conf`. Without a broker.conf, it has the settings of the store's own layout, as
    far as it knows them. What it does not see are paths below the store. Raises OSError.
    """
    path = store.path
    hidden = frozenset(_hidden(store, conf, version))
    if not hidden and not conf.path:
        return store, hidden
    read = conf_as_read(conf, version)._replace(dledger=conf.dledger and path.layout is Layout.DLEDGER)
    if not is_known(OF_ROCKSDB, version):
        read = read._replace(queues_in_rocksdb=False, queues_in_both=False)
    if conf.path:  # what it does not set has the default
        unset = (key for key in SIZE_KEYS if getattr(read, key.field) is None and "ext" not in key.field)
        sizes: dict[str, Any] = {key.field: usual_size(key) for key in unset}
        sizes["timer_log_file_size"] = read.timer_log_file_size or TIMER_LOG_FILE_SIZE
        read = read._replace(**sizes)
    disk = path.storage.of_disk
    storage = HidingStorage(disk, frozenset(path.root / name for name in hidden)) if hidden else None
    return ReadOnlyStore(path.root, read, follow_links=disk.follow_links, storage=storage), hidden


def _hidden(store: ReadOnlyStore, conf: BrokerConf, version: str) -> Iterator[str]:
    path, disk, is_said = store.path, store.path.storage.of_disk, bool(conf.path)
    if path.layout is Layout.DLEDGER and not (is_known(OF_DLEDGER, version) and (conf.dledger or not is_said)):
        names = (entry.name for entry in disk.listing(path.root) if entry.kind is Kind.DIRECTORY)
        yield from (name for name in names if name.startswith(DLEDGER_PREFIX))
    of_queues = [entry.name for entry in disk.listing(path.part(CONSUMEQUEUE))]
    if path.layout in (Layout.ROCKSDB, Layout.COMBINED):
        is_read = is_known(OF_BOTH if path.layout is Layout.COMBINED else OF_ROCKSDB, version)
        if not is_read or (is_said and not (conf.queues_in_rocksdb or conf.queues_in_both)):
            yield from (f"{CONSUMEQUEUE}/{name}" for name in of_queues if is_rocksdb_name(name))
            yield ROCKSDB_FOLDER
    elif conf.queues_in_rocksdb and is_known(OF_ROCKSDB, version) and not conf.queues_in_both:
        yield from (f"{CONSUMEQUEUE}/{name}" for name in of_queues)
    unread = (name for layout, option in OF_CONFIG.items() if not is_known(option, version) for name in layout)
    yield from (f"{CONFIG}/{name}" for name in unread if disk.entry(path.part(CONFIG) / name).kind is Kind.DIRECTORY)
