"""Find files of config/ that no longer exist, or that lost their entries.

A broker loads an empty table without a warning if a file and its .bak do not exist. A file counts as lost if other
files of the store show that it had entries. A message store that no broker used has none of the files.

A group with offsets but without an entry in subscriptionGroup.json is not reported: an operator may have deleted it,
and after `mqadmin deleteSubGroup`, a broker keeps its offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import (
    BACKUP_SUFFIX,
    GROUP_TABLE,
    GROUPS_CONFIG,
    OFFSET_TABLE,
    OFFSETS_CONFIG,
    TIMER_CHECK,
    TOPIC_TABLE,
    TOPICS_CONFIG,
    load_config,
    rocksdb_folder,
    table,
)
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_broker_topic,
)
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups, is_broker_group
from rmqctl.store.read.consumers.consumer_offsets import LMQ_CONSUMER_OFFSET
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore

FILTER_CONFIG = "consumerFilter.json"
# files that always have entries once a broker has served producers or consumers, and the table with these entries
ENTRY_TABLES = {TOPICS_CONFIG: TOPIC_TABLE, GROUPS_CONFIG: GROUP_TABLE, OFFSETS_CONFIG: OFFSET_TABLE}
# files that only a broker writes (not delayOffset.json, which a message store without a broker also writes)
OF_BROKER = (*ENTRY_TABLES, FILTER_CONFIG, TIMER_CHECK)
TOPICS_OF_BROKER = (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, DLQ_PREFIX)
NAMES_SHOWN = 3


def audit_lost_config(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings on files that lost their entries, and on missing files."""
    for name in ENTRY_TABLES:
        if what := emptied(store, name):
            yield Finding("config-empty", f"{CONFIG}/{name}", None, what)
        elif what := _missing(store, name):
            yield Finding("config-missing", f"{CONFIG}/{name}", None, what)


def emptied(store: ReadOnlyStore, name: str) -> str:
    """Describe a config file without entries whose .bak has some.

    "" if the file did not lose its entries.
    """
    config = store.config(name)
    if name not in ENTRY_TABLES or config.source != config.path or table(config, ENTRY_TABLES[name]):
        return ""
    backup = load_config(store.storage, store.path.part(CONFIG), name + BACKUP_SUFFIX)
    count = len(table(backup, ENTRY_TABLES[name]))
    return f"{name} has no entry in {ENTRY_TABLES[name]}, {name}{BACKUP_SUFFIX} has {count}" if count else ""


def lists_no_topic(store: ReadOnlyStore) -> bool:
    """Return whether topics.json lists none of the topics that have queues.

    False if the file cannot be loaded, or if no broker used the store.
    """
    topics = {topic for topic, _ in store.queues if not is_broker_topic(topic)}
    if store.config(TOPICS_CONFIG).content is None or not topics or topics & set(store.listed_topics):
        return False
    return bool(store.listed_topics) or _was_broker_here(store)


def _was_broker_here(store: ReadOnlyStore) -> bool:
    # not known (False) if the broker's configuration is in RocksDB
    if rocksdb_folder(store.storage, store.path.part(CONFIG)) is not None:
        return False
    return _has_file(store, *OF_BROKER) or any(topic.startswith(TOPICS_OF_BROKER) for topic, _ in store.queues)


def _has_file(store: ReadOnlyStore, *names: str) -> bool:
    folder = store.path.part(CONFIG)
    return any(
        store.storage.entry(folder / (name + suffix)).kind is not Kind.MISSING
        for name in names
        for suffix in ("", BACKUP_SUFFIX)
    )


def _missing(store: ReadOnlyStore, name: str) -> str:
    """Describe the lost entries if a config file and its .bak are missing.

    Every broker writes consumerFilter.json, even if no group has a filter. Without it nothing is reported, because
    config/ may not come from a broker.
    """
    if _has_file(store, name) or not _has_file(store, FILTER_CONFIG):
        return ""
    if rocksdb_folder(store.storage, store.path.part(CONFIG)) is not None:
        return ""
    if name == TOPICS_CONFIG:
        names, noun = {topic for topic, _ in store.queues} if lists_no_topic(store) else set(), "topic"
    else:
        names, noun = _groups(store, name), "consumer group"
    names = {one for one in names if not is_broker_topic(one) and not is_broker_group(one)}
    if not names:
        return ""
    shown = ", ".join(sorted(names)[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
    return f"neither {name} nor {name}{BACKUP_SUFFIX} exists, and the store has {counted(len(names), noun)}: {shown}"


def _groups(store: ReadOnlyStore, name: str) -> set[str]:
    """Return the groups that are named by other files and by %RETRY% topics.

    A broker with enableLmq does not need consumerOffset.json, because it keeps all offsets in lmqConsumerOffset.json.
    """
    if name == OFFSETS_CONFIG and _has_file(store, LMQ_CONSUMER_OFFSET):
        return set()
    groups = ConsumerGroups(store)
    topics = {topic for topic, _ in store.queues} | set(store.listed_topics)
    return groups.known.union(*(groups.groups_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)))
