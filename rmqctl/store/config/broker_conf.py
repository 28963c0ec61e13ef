"""The settings of broker.conf, a Java properties file, for a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.errors import BadRequest
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_EXT_FILE_SIZE, CQ_UNIT
from rmqctl.format.profile import NO_SETTINGS, StartSettings
from rmqctl.store.config.clean_config import USUAL_EXPIRY, ExpirySettings, expiry_settings
from rmqctl.store.config.ha_config import USUAL_HA, HAConf, ha_conf
from rmqctl.store.config.java_properties import NUMBER_DIGITS_MAX, JavaProperties
from rmqctl.store.config.message_store_config import USUAL, WritingConf, writing_conf

# the default of messageDelayLevel, from level 1 on: 1s 5s 10s 30s 1m ... 10m 20m 30m 1h 2h
DELAYS_MS = tuple(1000 * seconds for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200))
# settings without a meaning for a store: one of them is in almost every broker.conf
OF_EVERY_BROKER = ("brokerClusterName", "brokerName", "brokerId", "namesrvAddr", "listenPort", "brokerIP1")
RENAMED_IN = 4, 5, 2  # 4.1.0 to 4.5.1 read `maped…`, later versions `mapped…` (setters of MessageStoreConfig)
_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class SizeKey(NamedTuple):
    """A length of files in broker.conf: its key before and since RENAMED_IN."""

    field: str  # its name in BrokerConf and in Geometry
    old: str
    new: str
    unit: str = "bytes"  # what it counts

    def name(self, version: tuple[int, ...]) -> str:
        """Return the key that a version reads."""
        return self.old if version < RENAMED_IN else self.new


SIZE_KEYS = (
    SizeKey("commitlog_file_size", "mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
    SizeKey("consumequeue_file_size", "mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
    SizeKey("batchconsumequeue_file_size", "mapperFileSizeBatchConsumeQueue", "mapperFileSizeBatchConsumeQueue"),
    SizeKey("consumequeue_ext_file_size", "mappedFileSizeConsumeQueueExt", "mappedFileSizeConsumeQueueExt"),
    SizeKey("index_slots", "maxHashSlotNum", "maxHashSlotNum", "slots"),
)


TIMER_PRECISIONS_MS = (100, 200, 500, 1000)


class SizeLine(NamedTuple):
    """The lines of broker.conf, counted from 1, that set a length."""

    size: int | None  # in bytes or in the key's unit, rounded as the broker does; None: no number, and ignored
    first: int
    last: int


class BrokerConf(NamedTuple):
    """The settings of broker.conf that rmqctl uses; most define the store's layout.

    Sizes are in bytes, times in ms. What broker.conf does not set is None or the broker's default.
    """

    commitlog_paths: tuple[str, ...] = ()
    read_only_commitlog_paths: tuple[str, ...] = ()
    commitlog_file_size: int | None = None
    consumequeue_file_size: int | None = None
    consumequeue_ext_enabled: bool | None = None
    consumequeue_ext_file_size: int | None = None
    batchconsumequeue_file_size: int | None = None
    timer_enabled: bool = True  # timerWheelEnable, since 5.0
    timer_log_file_size: int | None = None
    timer_precision_ms: int = 1000
    index_slots: int | None = None
    index_entries: int | None = None
    index_enabled: bool = True
    index_in_database: bool = False  # look-ups ask rocksdbstore/ and not index/
    timers_in_database: bool | None = None  # timerRocksDBEnable
    delays_ms: tuple[int, ...] = DELAYS_MS
    writing: WritingConf = USUAL
    expiry: ExpirySettings = USUAL_EXPIRY
    ha: HAConf = USUAL_HA
    start: StartSettings = NO_SETTINGS
    queues_in_rocksdb: bool = False
    queues_in_both: bool = False
    reads_queue_database: bool = False  # of both (combineCQPreferCQType=defaultRocksDB)
    config_in_v2: bool = False  # configManagerVersion=v2: topics, groups and offsets are in config/rdb
    single_config_database: bool = False  # useSingleRocksDBForAllConfigs: they are in config/metadata
    enable_lmq: bool | None = None
    compaction_enabled: bool = True
    dledger: bool = False
    dledger_id: str = ""
    store_root: str = ""
    foreign: bool = False  # it has settings, but none that rmqctl knows: probably another program's file
    path: str = ""  # empty if no broker.conf is given
    size_lines: Mapping[str, SizeLine] = {}  # lengths of files by key, also under names that a version ignores
    ignored: Mapping[str, str] = {}  # values that are no number, by key: brokers take their default


def read_broker_conf(path: Path) -> BrokerConf:
    """Read the settings of the broker.conf file at `path`.

    Raises BadRequest if the file cannot be read, or a value in it is not valid.
    """
    return broker_conf_of(JavaProperties(path))


def broker_conf_of(said: JavaProperties) -> BrokerConf:
    """Return the settings of a broker from its properties.

    Raises BadRequest if a value is not valid.
    """
    path = said.path
    read_only = said.paths("readOnlyCommitLogStorePaths")
    lines = _size_lines(said)
    size_of = {
        key.field: next((line.size for name in (key.new, key.old) if (line := lines.get(name)) and line.size), None)
        for key in SIZE_KEYS
    }
    has_extensions = said.flag("enableConsumeQueueExt")
    ext_size = size_of["consumequeue_ext_file_size"]
    return BrokerConf(
        commitlog_paths=tuple(dict.fromkeys((*said.paths("storePathCommitLog"), *read_only))),
        read_only_commitlog_paths=read_only,
        commitlog_file_size=size_of["commitlog_file_size"],
        consumequeue_file_size=size_of["consumequeue_file_size"],
        consumequeue_ext_enabled=has_extensions,
        consumequeue_ext_file_size=ext_size or (CQ_EXT_FILE_SIZE if has_extensions else None),
        batchconsumequeue_file_size=_batch_queue_size(size_of["batchconsumequeue_file_size"], path),
        timer_enabled=said.flag("timerWheelEnable") is not False,
        timer_log_file_size=said.number("mappedFileSizeTimerLog"),
        timer_precision_ms=_timer_precision(said.number("timerPrecisionMs") or TIMER_PRECISIONS_MS[-1]),
        index_slots=size_of["index_slots"],
        index_entries=said.number("maxIndexNum"),
        index_enabled=said.flag("messageIndexEnable") is not False,
        index_in_database=said.flag("indexFileReadEnable") is False and bool(said.flag("indexRocksDBEnable")),
        timers_in_database=said.flag("timerRocksDBEnable"),
        delays_ms=_delays(said.text("messageDelayLevel"), path),
        writing=writing_conf(said),
        expiry=expiry_settings(said),
        ha=ha_conf(said),
        start=_start_settings(said),
        queues_in_rocksdb="rocksdb" in said.text("storeType").lower(),
        queues_in_both=bool(said.flag("rocksdbCQDoubleWriteEnable")),
        reads_queue_database=said.text("combineCQPreferCQType").lower() == "defaultrocksdb",
        config_in_v2=said.text("configManagerVersion") == "v2",
        single_config_database=bool(said.flag("useSingleRocksDBForAllConfigs")),
        enable_lmq=said.flag("enableLmq"),
        compaction_enabled=said.flag("enableCompaction") is not False,
        dledger=bool(said.flag("enableDLegerCommitLog")),
        dledger_id=said.text("dLegerSelfId").strip(),
        store_root=said.path_of("storePathRootDir"),
        path=str(path),
        size_lines=lines,
        ignored=said.ignored,
        foreign=said.is_foreign(*OF_EVERY_BROKER),  # must be last: it counts the settings read before
    )


def _timer_precision(said_ms: int) -> int:
    # as MessageStoreConfig.setTimerPrecisionMs
    return max((one for one in TIMER_PRECISIONS_MS if one <= said_ms), default=TIMER_PRECISIONS_MS[0])


def _start_settings(said: JavaProperties) -> StartSettings:
    has_index = said.flag("messageIndexEnable") is not False
    return StartSettings(
        force_verify_prop_crc=bool(said.flag("forceVerifyPropCRC")),
        message_index_safe=bool(said.flag("messageIndexSafe")) and has_index,
        duplication=bool(said.flag("duplicationEnable")),
        recheck_reput_offset=bool(said.flag("recheckReputOffsetFromCq")),
        recover_max_num=said.number("commitLogRecoverMaxNum", least=0) or NO_SETTINGS.recover_max_num,
        check_offset=bool(said.flag("checkCommitLogOffsetOnRecover")),
        accelerated=bool(said.flag("enableAcceleratedRecovery")),
        check_crc=said.flag("checkCRCOnRecover") is not False,
        multi_dispatch=bool(said.flag("enableMultiDispatch")),
        lmq=bool(said.flag("enableLmq")),
    )


def _size_lines(said: JavaProperties) -> dict[str, SizeLine]:
    found = {}
    for key in SIZE_KEYS:
        unit = CQ_UNIT.size if key.field == "consumequeue_file_size" else 1
        for name in dict.fromkeys((key.old, key.new)):
            size = said.number(name)
            if size is not None or name in said.ignored:
                found[name] = SizeLine(size and -(-size // unit) * unit, *said.lines_of(name))
    return found


def _batch_queue_size(size: int | None, path: Path) -> int | None:
    """Return the length of a batch consume queue's files in bytes, or None.

    Raises BadRequest if it is not a multiple of 46 bytes, the size of a unit: brokers of 5.x do not round it, and do
    not load files of a wrong length.
    """
    if size is not None and size % BATCH_CQ_UNIT.size:
        what = (
            f"mapperFileSizeBatchConsumeQueue={size} is no multiple of {BATCH_CQ_UNIT.size}: 5.x does not load "
            "such queues"
        )
        raise BadRequest(what, path=str(path))
    return size


def _delays(text: str, path: Path) -> tuple[int, ...]:
    """Return the delays in a text such as `1s 5s 10s`, in ms; the broker's if empty.

    Raises BadRequest if a word is not a duration.
    """
    if not text.strip():
        return DELAYS_MS
    delays = []
    for word in text.split():
        number, unit = word[:-1], _DELAY_UNITS_MS.get(word[-1].lower())
        if unit is None or not number.isdecimal() or len(number) > NUMBER_DIGITS_MAX:
            raise BadRequest(f"messageDelayLevel: {word!r} is not a duration", path=str(path))
        delays.append(int(number) * unit)
    return tuple(delays)
