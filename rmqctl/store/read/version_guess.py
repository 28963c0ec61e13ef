"""A guess of the broker version that wrote a store.

Some files and folders, and some parts of topics.json, are signs of 5.x, because only 5.x writes them. One sign of 5.x
is the file `abort.bak`, which a broker of 5.x creates at each start. When rmqctl writes in the format of 5.3 or 5.4,
rmqctl creates `abort.bak`. A 5.x store without messages and without `abort.bak` would look like a 4.x store.

In a store without signs of 5.x, the last byte of the properties shows the version. Brokers up to 4.9.0 write 0x02 after
the last property. Brokers from 4.9.1 to 5.1.4 write no 0x02 after the last property. Brokers of 5.2 and later write
0x02 after the last property.

`rmqctl.store.read.index.tag_index` searches for signs of 5.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import LayoutNotSupported
from rmqctl.format.index_entry import ENTRY_FIRST, unique_key_hash
from rmqctl.format.message import Message
from rmqctl.format.profile import (
    PROFILE_4_7,
    PROFILE_4_9,
    PROFILE_5_3,
    PROFILE_5_4,
    VERSIONS,
    Profile,
    profile_of,
)
from rmqctl.format.properties import PROPERTY_SEPARATOR
from rmqctl.store.config.config_file import TOPICS_CONFIG, table
from rmqctl.store.read.index.tag_index import TAGS_IN_INDEX, newest_indexed, signs_of_5_4

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SAMPLE_RECORDS = 64


def guess_profile(store: ReadOnlyStore) -> Profile:
    """Return the profile of the broker that wrote the store.

    If the store has no sign of the version, the result is the profile 4.9. If broker.conf sets enabledAppendPropCRC,
    the result is a profile of 5.x. Only 5.2 and later have the setting enabledAppendPropCRC.
    """
    if signs_of_5_4(store):
        return PROFILE_5_4
    if store.conf.writing.property_crc or signs_of_5(store):
        return PROFILE_5_3
    return PROFILE_4_7 if ends_with_separator(store) else PROFILE_4_9


def candidate_versions(store: ReadOnlyStore, profile: Profile) -> tuple[str, ...]:
    """Return the versions of `profile` that may have written the store.

    The last byte of the properties narrows them. If it is that of no version of the profile, it narrows nothing.
    """
    group = [one for one in map(profile_of, VERSIONS) if one.name == profile.name]
    ends = ends_with_separator(store)
    fitting = [one for one in group if ends in (None, one.ends_properties_with_separator)]
    return tuple(one.version for one in fitting or group)


def shows_version(store: ReadOnlyStore) -> bool:
    """Return whether the store shows which broker version wrote it.

    The result is False if the store has no sign of 5.x and the first records have no properties.
    """
    return store.conf.writing.property_crc or bool(signs_of_5(store)) or ends_with_separator(store) is not None


def signs_of_5(store: ReadOnlyStore) -> list[str]:
    """Return the signs that a broker of 5.x wrote the store."""
    attributes = ["attributes in config/topics.json"] if _has_topic_attributes(store) else []
    return store.path.version_signs() + attributes + ([TAGS_IN_INDEX] if store.tags_are_indexed else [])


def _has_topic_attributes(store: ReadOnlyStore) -> bool:
    """Return whether topics.json has parts that only a broker of 5.x writes."""
    version, topics = table(store.config(TOPICS_CONFIG), "dataVersion"), store.listed_topics.values()
    return "stateVersion" in version or any("attributes" in topic for topic in topics if isinstance(topic, dict))


def ends_with_separator(store: ReadOnlyStore) -> bool | None:
    """Return whether the properties of the log's first records end with 0x02.

    The majority of the first records decides. In a batch, the properties may end differently, because the client writes
    these properties. The result is None if the first records have no properties.
    """
    votes = []
    position = store.commit_log.min_offset
    for _ in range(SAMPLE_RECORDS):
        found = store.commit_log.at(position)
        if not isinstance(found, Message):
            break
        if found.properties_bytes:
            votes.append(found.properties_bytes.endswith(PROPERTY_SEPARATOR.encode()))
        position = found.end
    return sum(votes) * 2 > len(votes) if votes else None


def looks_like_3x(store: ReadOnlyStore) -> bool:
    """Return whether a broker of 3.x wrote the store.

    A store of 3.x has no file `lock` and no sign of 5.x. In every index file of 3.x, hashSlotCount is the number of
    entries. Brokers of 3.x write no index entries for UNIQ_KEY. The result is False if the index has no entries.
    """
    if store.path.has_lock_file or store.path.version_signs():
        return False
    has_entries = False
    for index_file in store.index.files:
        header = index_file.header()
        if header is None or header.hash_slot_count != header.index_count - 1:
            return False
        has_entries = has_entries or header.index_count > ENTRY_FIRST
    return has_entries and not indexes_unique_keys(store)


def store_of_3x(store: ReadOnlyStore) -> LayoutNotSupported:
    """Return the error for a command that would change the log or queues of 3.x."""
    what = "log, queues and index of RocketMQ 3.x are read-only for rmqctl: it plans and makes no change there"
    hint = (
        "verify and dump read it; dump --body base64 -o jsonl | rmqctl append NEW --create --from - copies its messages"
    )
    return LayoutNotSupported(what, path=str(store.path.root), hint=hint)


def indexes_unique_keys(store: ReadOnlyStore) -> bool:
    """Return whether some of the newest index entries are for UNIQ_KEY.

    Brokers of 4.0 and later write index entries for UNIQ_KEY.
    """
    return any(unique_key_hash(message) in hashes for message, hashes in newest_indexed(store))
