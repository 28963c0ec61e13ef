"""What the broker was told and what it remembers: broker.conf, and config/*.json.

broker.conf is a Java properties file. Of config/*.json a broker reads the main file, and its `.bak` when the main one is empty
or invalid; the JSON is fastjson's dialect, in UTF-8 (5.x) or the platform's charset (4.x; bytes that are no UTF-8 are
read as Latin-1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.errors import BadRequest
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT
from rmqctl.format.java import fastjson_loads
from rmqctl.logfile.storage import Kind, Storage
from rmqctl.store import config_types
from rmqctl.store.expiry_settings import USUAL_EXPIRY, ExpirySettings, expiry_settings
from rmqctl.store.java_properties import NUMBER_DIGITS_MAX, JavaProperties
from rmqctl.store.writing_conf import USUAL, WritingConf, writing_conf

CONFIG_SIZE_MAX = 16 * 1024 * 1024
TOPICS_CONFIG, TOPIC_TABLE = "topics.json", "topicConfigTable"


# messageDelayLevel's own list, by level from 1 on: 1s 5s 10s 30s 1m ... 10m 20m 30m 1h 2h
DELAYS_MS = tuple(1000 * seconds for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200))
_DELAY_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class BrokerConf(NamedTuple):
    """The parts of broker.conf that say how the store is laid out. Sizes in bytes, times in ms; None: not said."""

    commitlog_paths: tuple[str, ...] = ()
    read_only_commitlog_paths: tuple[str, ...] = ()
    commitlog_file_size: int | None = None
    consumequeue_file_size: int | None = None
    consumequeue_ext_enabled: bool | None = None
    consumequeue_ext_file_size: int | None = None
    batchconsumequeue_file_size: int | None = None
    index_slots: int | None = None
    index_entries: int | None = None
    index_enabled: bool = True
    delays_ms: tuple[int, ...] = DELAYS_MS
    writing: WritingConf = USUAL
    expiry: ExpirySettings = USUAL_EXPIRY
    queues_in_rocksdb: bool = False
    queues_in_both: bool = False
    dledger: bool = False
    dledger_id: str = ""
    store_root: str = ""


def read_broker_conf(path: Path) -> BrokerConf:
    """Read a broker.conf. Raises BadRequest when it cannot be read or a number in it is none."""
    said = JavaProperties(path)
    read_only = said.paths("readOnlyCommitLogStorePaths")
    queue_size = said.number("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")
    return BrokerConf(
        commitlog_paths=tuple(dict.fromkeys((*said.paths("storePathCommitLog"), *read_only))),
        read_only_commitlog_paths=read_only,
        commitlog_file_size=said.number("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"),
        consumequeue_file_size=queue_size and -(-queue_size // CQ_UNIT.size) * CQ_UNIT.size,
        consumequeue_ext_enabled=said.flag("enableConsumeQueueExt"),
        consumequeue_ext_file_size=said.number("mappedFileSizeConsumeQueueExt"),
        batchconsumequeue_file_size=_batch_queue_size(said, path),
        index_slots=said.number("maxHashSlotNum"),
        index_entries=said.number("maxIndexNum"),
        index_enabled=said.text("messageIndexEnable").lower() != "false",
        delays_ms=_delays(said.text("messageDelayLevel"), path),
        writing=writing_conf(said),
        expiry=expiry_settings(said),
        queues_in_rocksdb="rocksdb" in said.text("storeType").lower(),
        queues_in_both=bool(said.flag("rocksdbCQDoubleWriteEnable")),
        dledger=bool(said.flag("enableDLegerCommitLog")),
        dledger_id=said.text("dLegerSelfId").strip(),
        store_root=said.path_of("storePathRootDir"),
    )


def _batch_queue_size(said: JavaProperties, path: Path) -> int | None:
    """5.x does not round it, and does not load what a size that is no multiple of units makes."""
    size = said.number("mapperFileSizeBatchConsumeQueue")
    if size is not None and size % BATCH_CQ_UNIT.size:
        what = f"mapperFileSizeBatchConsumeQueue={size} is no multiple of {BATCH_CQ_UNIT.size}: 5.x does not load such queues"
        raise BadRequest(what, path=str(path))
    return size


def _delays(text: str, path: Path) -> tuple[int, ...]:
    """`1s 5s 10s ...` in ms; the broker's own list where nothing is said."""
    if not text.strip():
        return DELAYS_MS
    delays = []
    for word in text.split():
        number, unit = word[:-1], _DELAY_UNITS_MS.get(word[-1].lower())
        if unit is None or not number.isdecimal() or len(number) > NUMBER_DIGITS_MAX:
            raise BadRequest(f"messageDelayLevel: {word!r} is not a duration", path=str(path))
        delays.append(int(number) * unit)
    return tuple(delays)


class ConfigFile(NamedTuple):
    """One config file as a broker would load it: `content`, or None with the `problem`; `source` is the file it came from."""

    name: str
    path: Path
    content: dict[str, Any] | None
    problem: str = ""
    source: Path | None = None


def load_config(storage: Storage, folder: Path, name: str) -> ConfigFile:
    """Load config/`name`, or its `.bak` where a broker would take that. A file that is not there has an empty content.

    With a bad main file and no `.bak` a broker starts with an empty configuration; here the content is None.
    """
    path = folder / name
    main, problem = _parse(storage, path)
    if main is not None and not problem:
        return ConfigFile(name, path, main, source=path)
    backup = path.with_name(name + ".bak")
    content, backup_problem = _parse(storage, backup)
    if content is not None and not backup_problem:
        return ConfigFile(name, path, content, problem, source=backup)
    return ConfigFile(name, path, None if problem or backup_problem else {}, problem or backup_problem)


def _parse(storage: Storage, path: Path) -> tuple[dict[str, Any] | None, str]:
    """(content, problem); (None, "") when there is no file."""
    try:
        kind = storage.entry(path).kind
        if kind is Kind.MISSING:
            return None, ""
        if kind is not Kind.FILE:
            return None, f"{path.name} is a {kind.value}"
        raw = storage.read_file(path, CONFIG_SIZE_MAX)
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror}"
    if not raw.strip():
        return None, f"{path.name} is empty"
    if b"\0" in raw:
        return None, f"{path.name} is not JSON: it has a NUL byte at {raw.index(0)}"
    try:
        content = fastjson_loads(_decoded(raw))
    except ValueError as error:
        return None, f"{path.name} is not JSON: {error}"
    if not isinstance(content, dict):
        return None, f"{path.name} is not a JSON object"
    try:
        return config_types.as_broker_reads(path.name.removesuffix(".bak"), content), ""
    except ValueError as error:
        return None, f"{path.name} has a value that a broker does not take: {error}"


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def table(config: ConfigFile, key: str) -> dict[str, Any]:
    """The map `key` of a config file; empty when it is missing or something else."""
    found = (config.content or {}).get(key)
    return found if isinstance(found, dict) else {}


def batch_topics(topics: ConfigFile) -> frozenset[str]:
    """The topics with batch consume queues, by topics.json (5.x, queue.type=BatchCQ)."""
    found = set()
    for name, topic in table(topics, TOPIC_TABLE).items():
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            found.add(name)
    return frozenset(found)
