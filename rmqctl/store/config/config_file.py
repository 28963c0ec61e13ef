"""The files of config/ as a broker loads them.

A broker reads the `.bak` of a file when the main file is empty or not valid.

The JSON is fastjson's dialect, in UTF-8 (5.x) or the platform's charset (4.x; bytes that are not UTF-8 are read as
Latin-1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.logfile.system.storage import Kind, Storage
from rmqctl.store.config import config_types
from rmqctl.store.config.fastjson import fastjson_loads

CONFIG_SIZE_MAX = 16 * 1024 * 1024
TOPICS_CONFIG, TOPIC_TABLE = "topics.json", "topicConfigTable"


class ConfigFile(NamedTuple):
    """A config file as a broker loads it: `content`, or None and the `problem`.

    `source` is the file that was loaded.
    """

    name: str
    path: Path
    content: dict[str, Any] | None
    problem: str = ""
    source: Path | None = None


def load_config(storage: Storage, folder: Path, name: str) -> ConfigFile:
    """Load config/`name`, or its `.bak` where a broker would load that.

    A file that does not exist has an empty content. With a bad main file and no `.bak` a broker starts with an empty
    configuration; here the content is None.
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
    """Return (content, problem); (None, "") when the file does not exist."""
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
    """Return the map `key` of a config file; empty when it is missing or not a map."""
    found = (config.content or {}).get(key)
    return found if isinstance(found, dict) else {}


def batch_topics(topics: ConfigFile) -> frozenset[str]:
    """Return the topics with batch consume queues (5.x, queue.type=BatchCQ).

    topics.json names them.
    """
    found = set()
    for name, topic in table(topics, TOPIC_TABLE).items():
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ":
            found.add(name)
    return frozenset(found)
