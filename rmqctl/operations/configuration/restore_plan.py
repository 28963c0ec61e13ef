"""The plan that restores a file of config/ from its .bak or from the store."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.forensics.audit.lost_config import ENTRY_TABLES, emptied, lists_no_topic
from rmqctl.format.timestamp import rfc3339
from rmqctl.operations.configuration.config_change import check_is_in_files, planned_change
from rmqctl.operations.configuration.names_in_store import names_in_store
from rmqctl.operations.configuration.rebuilt_entries import group_entries, topic_entries
from rmqctl.store.config.config_file import (
    BACKUP_SUFFIX,
    CONFIG_SIZE_MAX,
    DATA_VERSION,
    GROUP_TABLE,
    GROUPS_CONFIG,
    TOPIC_TABLE,
    TOPICS_CONFIG,
    charset_of,
    read_config,
    table,
)
from rmqctl.store.config.data_version import next_version
from rmqctl.store.config.fastjson import fastjson_bytes, fastjson_dumps
from rmqctl.store.config.fastjson_edit import with_members
from rmqctl.store.config.topics import is_broker_topic
from rmqctl.store.rocksdb.config_files import SHOWN
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from rmqctl.format.profile import Profile
    from rmqctl.operations.configuration.config_change import ConfigChange
    from rmqctl.store.config.config_file import ConfigFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Source = Literal["bak", "store"]
TABLES = {TOPICS_CONFIG: TOPIC_TABLE, GROUPS_CONFIG: GROUP_TABLE}  # of the files that the store can rebuild
NOUNS = {TOPICS_CONFIG: "topic", GROUPS_CONFIG: "group"}
NAMES_SHOWN_MAX = 5


@dataclass(frozen=True)
class RestorePlan:
    """The plan for the new content of the file config/`name`."""

    name: str
    problem: str  # with the present file; "" if it is good
    source: Source | None  # of the new content; None: the file stays unchanged
    change: ConfigChange | None = None
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)  # topics or groups that were added or corrected
    notes: tuple[str, ...] = ()  # further remarks for the operator

    @property
    def summary(self) -> str:
        """Describe the change in one line."""
        return f"config/{self.name} is restored from {'its .bak' if self.source == 'bak' else 'the store'}"


def plan_restore(
    store: ReadOnlyStore,
    profile: Profile,
    name: str,
    source: Source | None,
    scan_log: Callable[[], Collection[QueueKey]],
) -> RestorePlan:
    """Return the plan that restores config/`name`.

    If `source` is None, a good file stays unchanged, and a bad one is restored from its .bak, or if that is bad,
    rebuilt from the store. A topics.json that lists no topic with queues is rebuilt, too. `scan_log` returns the queues
    of all messages of the log, and is called only if the log is needed.

    Raises BadRequest if the file cannot be rebuilt, and Unreadable if the .bak cannot be used. Also raises
    LayoutNotSupported and OSError.
    """
    if name in SHOWN:
        check_is_in_files(store)
    config = store.config(name)
    problem = "" if config.source == config.path else config.problem or f"{name} is missing"
    lost = emptied(store, name)
    chosen = source
    if not problem and not lost and name == TOPICS_CONFIG and lists_no_topic(store):
        problem, chosen = f"{name} lists no topic that has queues", source or "store"
    elif lost:
        problem, chosen = lost, source or "bak"
    chosen = chosen or _chosen(store, config, problem)
    if chosen == "bak":
        return _from_backup(store, config, problem)
    if chosen == "store":
        return _from_store(store, profile, config, problem, scan_log)
    return RestorePlan(name, problem, None, notes=_unlisted(store, config.content or {}, name))


def _chosen(store: ReadOnlyStore, config: ConfigFile, problem: str) -> Source | None:
    if not problem:
        return None
    if config.source is not None:
        return "bak"
    if config.name in TABLES:
        return "store"
    _, backup_problem = read_config(store.storage, _backup(config))
    what = f"{problem}, and {backup_problem or 'it has no .bak'}: nothing else in the store has its content"
    raise Unreadable(what, path=str(config.path), hint=_hint(config.name))


def _hint(name: str) -> str:
    if "Offset" in name:
        return "`rmqctl config set-offset` sets the offsets of a group; a copy from a slave has all of them"
    return "put a good copy there; without the bad files, a broker starts with an empty configuration"


def _backup(config: ConfigFile) -> Path:
    return config.path.with_name(config.name + BACKUP_SUFFIX)


def _from_backup(store: ReadOnlyStore, config: ConfigFile, problem: str) -> RestorePlan:
    backup = _backup(config)
    content, backup_problem = read_config(store.storage, backup)
    if content is None:
        hint = "--from store rebuilds it" if config.name in TABLES else _hint(config.name)
        raise Unreadable(backup_problem or "there is no .bak", path=str(backup), hint=hint)
    change = planned_change(store, config.name, store.storage.read_file(backup, CONFIG_SIZE_MAX))
    notes = (*_content_of(content, config.name), *_unlisted(store, content, config.name))
    return RestorePlan(config.name, problem, "bak", change, notes=notes)


def _content_of(content: dict[str, Any], name: str) -> tuple[str, ...]:
    key = ENTRY_TABLES.get(name)
    if key is None:
        return ()
    entries, version = content.get(key), content.get(DATA_VERSION)
    count = len(entries) if isinstance(entries, dict) else 0
    changed = version.get("timestamp") if isinstance(version, dict) else None
    moment = rfc3339(changed) if isinstance(changed, int) else None
    return (f"the .bak has {count} in {key}" + (f", last changed at {moment}" if moment else ""),)


def _from_store(
    store: ReadOnlyStore,
    profile: Profile,
    config: ConfigFile,
    problem: str,
    scan_log: Callable[[], Collection[QueueKey]],
) -> RestorePlan:
    """Complete the file with entries found in the store.

    The entries of the file stay, or those of the .bak if the file cannot be loaded. The log is scanned only if neither
    has entries; without a scan, a topic without a queue counts as deleted.
    """
    if config.name not in TABLES:
        what = f"{config.name} cannot be rebuilt: nothing else in the store has its content"
        raise BadRequest(what, path=str(config.path), hint=f"only {' and '.join(TABLES)} can be")
    listed = table(config, TABLES[config.name])
    names = names_in_store(store, () if listed else scan_log())
    if config.name == TOPICS_CONFIG:
        entries = topic_entries(listed, names, profile)
    else:
        entries = group_entries(store, listed, names, profile)
    version = next_version((config.content or {}).get(DATA_VERSION), profile, time.time_ns() // 1_000_000)
    if config.source is not None:
        raw = store.storage.read_file(config.source, CONFIG_SIZE_MAX)
        charset = charset_of(raw)
        text = with_members(raw.decode(charset), (TABLES[config.name],), entries)
        after = fastjson_bytes(with_members(text, (DATA_VERSION,), version), charset) if entries else raw
    else:
        after = fastjson_bytes(fastjson_dumps({DATA_VERSION: version, TABLES[config.name]: entries}))
    change = planned_change(store, config.name, after)
    return RestorePlan(config.name, problem, "store", change, entries, _unknown(NOUNS[config.name], entries, listed))


def _unknown(noun: str, entries: dict[str, dict[str, Any]], listed: dict[str, Any]) -> tuple[str, ...]:
    added = sum(name not in listed for name in entries)
    if not added:
        return ()
    return (f"{counted(added, noun)} added with the settings that a broker gives: those that they had are not known",)


def _unlisted(store: ReadOnlyStore, content: dict[str, Any], name: str) -> tuple[str, ...]:
    if name != TOPICS_CONFIG:
        return ()
    listed = content.get(TOPIC_TABLE)
    missing = sorted({topic for topic, _ in store.queues} - set(listed if isinstance(listed, dict) else ()))
    missing = [topic for topic in missing if not is_broker_topic(topic)]
    if not missing:
        return ()
    shown = ", ".join(missing[:NAMES_SHOWN_MAX]) + (", ..." if len(missing) > NAMES_SHOWN_MAX else "")
    what = f"{counted(len(missing), 'topic')} with queues are not in it: {shown}"
    return (f"{what}; --from store adds them, but they may have been deleted",)
