"""Load the files in config/ in the same way as a broker.

A broker reads the `.bak` of a config file if the main file does not exist, is empty or is not valid.

They are JSON in fastjson's dialect, in UTF-8 (5.x) or in the platform's charset (4.x). rmqctl reads a file that is not
valid UTF-8 as Latin-1.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.logfile.system.rocksdb import has_database
from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.store.config import config_types
from rmqctl.store.config.fastjson import fastjson_loads
from rmqctl.store.rocksdb.config_files import LAYOUTS

CONFIG_SIZE_MAX = 16 * 1024 * 1024
TOPICS_CONFIG, TOPIC_TABLE = "topics.json", "topicConfigTable"
DATA_VERSION = "dataVersion"
BACKUP_SUFFIX = ".bak"
GROUPS_CONFIG, GROUP_TABLE = "subscriptionGroup.json", "subscriptionGroupTable"
OFFSETS_CONFIG, OFFSET_TABLE = "consumerOffset.json", "offsetTable"
DELAY_OFFSETS_CONFIG = "delayOffset.json"
QUEUE_MAPPINGS_CONFIG, QUEUE_MAPPING_TABLE = "topicQueueMapping.json", "topicQueueMappingInfoMap"  # static topics
REQUEST_MODES_CONFIG, REQUEST_MODE_TABLE = "messageRequestMode.json", "messageRequestModeMap"
TIMER_METRICS, TIMING_COUNT, TIMER_CHECK = "timermetrics", "timingCount", "timercheck"
CONFIG_FILES = (
    TOPICS_CONFIG,
    OFFSETS_CONFIG,
    "lmqConsumerOffset.json",
    DELAY_OFFSETS_CONFIG,
    GROUPS_CONFIG,
    "consumerFilter.json",
)
CONFIG_FILES_OF_5 = ("consumerOrderInfo.json", TIMER_METRICS, "transactionMetrics")
_BLANKS = b" \t\r\n"
_REFUSES_BLANKS = {PROFILE_4_7: GROUPS_CONFIG, PROFILE_4_9: GROUPS_CONFIG, PROFILE_5_3: OFFSETS_CONFIG}  # fastjson 1


class ConfigFile(NamedTuple):
    """A config file as a broker loads it."""

    name: str
    path: Path
    content: dict[str, Any] | None  # None: the file cannot be loaded
    problem: str = ""  # the fault of the main file or of its `.bak`
    source: Path | None = None  # the main file or its `.bak`, whichever was loaded


def load_config(storage: Storage, folder: Path, name: str) -> ConfigFile:
    """Load config/`name`, or its `.bak` if a broker would use that.

    If neither exists, the content is an empty dict. If an existing one cannot be loaded, and the other neither, it is
    None: `starts_empty` then says whether a broker starts without the entries.
    """
    path = folder / name
    main, problem = read_config(storage, path)
    if main is not None and not problem:
        return ConfigFile(name, path, main, source=path)
    backup = path.with_name(name + BACKUP_SUFFIX)
    content, backup_problem = read_config(storage, backup)
    if content is not None and not backup_problem:
        return ConfigFile(name, path, content, problem, source=backup)
    return ConfigFile(name, path, None if problem or backup_problem else {}, problem or backup_problem)


def read_config(storage: Storage, path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the content of one config file, and a text about its problem.

    They are (None, "") if the file does not exist, and the content is None if it has a problem.
    """
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
    if b"\0" in (raw.rstrip(b"\0") or raw):
        return None, f"{path.name} is not JSON: it has a NUL byte at {raw.index(0)}"
    try:
        content = fastjson_loads(raw.decode(charset_of(raw)))
    except ValueError as error:
        return None, f"{path.name} is not JSON: {error}"
    if not isinstance(content, dict):
        return None, f"{path.name} is not a JSON object"
    try:
        return config_types.as_broker_reads(path.name.removesuffix(BACKUP_SUFFIX), content), ""
    except ValueError as error:
        return None, f"{path.name} has a value that a broker does not take: {error}"


def charset_of(raw: bytes) -> str:
    """Return the charset in which rmqctl reads and writes a config file."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def rocksdb_folder(storage: Storage, folder: Path) -> str | None:
    """Return the name of a RocksDB folder in config/, or None if there are files."""
    return next((name for name in chain(*LAYOUTS) if has_database(storage, folder / name)), None)


def table(config: ConfigFile, key: str) -> dict[str, Any]:
    """Return the map with the name `key` from a config file; empty without one."""
    found = (config.content or {}).get(key)
    return found if isinstance(found, dict) else {}


def batch_topics(topics: ConfigFile) -> frozenset[str]:
    """Return the topics with batch consume queues (5.x, queue.type=BatchCQ).

    `topics` is the loaded file topics.json.
    """
    return _topics_with(topics, "queue.type", "BatchCQ")


def compaction_topics(topics: ConfigFile) -> frozenset[str]:
    """Return the topics that a broker compacts (5.1 and later)."""
    return _topics_with(topics, "cleanup.policy", "COMPACTION")


def _topics_with(topics: ConfigFile, attribute: str, value: str) -> frozenset[str]:
    found = set()
    for name, topic in table(topics, TOPIC_TABLE).items():
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        if isinstance(attributes, dict) and attributes.get(attribute) == value:
            found.add(name)
    return frozenset(found)


def starts_empty(storage: Storage, folder: Path, name: str, profile: Profile) -> bool:
    """Return whether a broker starts without the entries of config/`name`.

    It reads the `.bak` if a file does not exist, has 0 bytes, or is not valid, and exits if the `.bak` is not valid
    either (ConfigManager.load). It does not read the `.bak` of a valid file without entries. The JSON parser decides
    which other texts mean "no entries" to a broker:

    | text | fastjson 1 (brokers up to 5.3.4) | fastjson 2 (5.4.0 and later) |
    |---|---|---|
    | `null` | no entries | no entries |
    | `[]` | no entries | not valid |
    | only blanks | no entries, but not valid in one file (see below) | not valid |

    fastjson 1 parses most files with generated code, which accepts blanks; without it, blanks are not valid: in
    subscriptionGroup.json (4.7.1 to 5.0.0) and in consumerOffset.json (5.0.0 to 5.3.4).

    Call this only if rmqctl can read neither the file nor its `.bak`. False means that the broker exits.
    """
    main, backup = (_read(storage, folder / (name + suffix)) for suffix in ("", BACKUP_SUFFIX))
    return not backup or any(_has_no_entries(text, name, profile) for text in (main, backup))


def _read(storage: Storage, path: Path) -> bytes:
    """Return the bytes of a file, or b"" if the file does not exist.

    For one that cannot be read, they are a text that is not valid.
    """
    try:
        return storage.read_file(path, CONFIG_SIZE_MAX) if storage.entry(path).kind is Kind.FILE else b""
    except OSError:
        return b"?"


def _has_no_entries(text: bytes, name: str, profile: Profile) -> bool:
    """Return whether a text is valid to a broker, and has no entries."""
    stripped = text.strip(_BLANKS)
    if stripped == b"null":
        return True
    if profile not in _REFUSES_BLANKS:
        return False
    has_only_blanks = bool(text) and not stripped
    return stripped == b"[]" or (has_only_blanks and name != _REFUSES_BLANKS[profile])
