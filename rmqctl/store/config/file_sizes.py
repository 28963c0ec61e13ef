"""The lengths of the files in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_EXT_FILE_SIZE, CQ_UNIT
from rmqctl.format.profile import number_of
from rmqctl.store.config.broker_conf import SIZE_KEYS

if TYPE_CHECKING:
    from rmqctl.store.config.broker_conf import BrokerConf, SizeKey

TIMER_LOG_FILE_SIZE = 100 * 1024 * 1024  # mappedFileSizeTimerLog of 5.x


class Geometry(NamedTuple):
    """The lengths of a store's files in bytes, and the capacity of index files.

    The defaults are the broker's.
    """

    commitlog_file_size: int = 1 << 30
    consumequeue_file_size: int = 300_000 * CQ_UNIT.size
    index_slots: int = 5_000_000  # number in an index file
    index_entries: int = 20_000_000  # number in an index file
    consumequeue_ext_file_size: int = CQ_EXT_FILE_SIZE
    batchconsumequeue_file_size: int = 300_000 * BATCH_CQ_UNIT.size


def geometry_of_conf(conf: BrokerConf) -> Geometry:
    """Return the file lengths that broker.conf sets, or the broker's defaults."""
    usual = Geometry()
    return Geometry(
        conf.commitlog_file_size or usual.commitlog_file_size,
        conf.consumequeue_file_size or usual.consumequeue_file_size,
        conf.index_slots or usual.index_slots,
        conf.index_entries or usual.index_entries,
        conf.consumequeue_ext_file_size or usual.consumequeue_ext_file_size,
        conf.batchconsumequeue_file_size or usual.batchconsumequeue_file_size,
    )


def conf_as_read(conf: BrokerConf, version: str) -> BrokerConf:
    """Return the settings with the sizes that a version takes.

    It ignores the keys of other versions.
    """
    sizes: dict[str, Any] = {}
    for key in SIZE_KEYS:
        line = conf.size_lines.get(key.name(number_of(version)))
        if line is not None and line.size is not None:
            sizes[key.field] = line.size
        elif conf.size_lines.keys() & {key.old, key.new}:
            sizes[key.field] = usual_size(key)
    return conf._replace(**sizes)


def usual_size(key: SizeKey) -> int:
    """Return the default size, in the unit of the key."""
    return int(getattr(Geometry(), key.field))
