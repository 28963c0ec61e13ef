"""A guess of the broker version that wrote a store.

Only 5.x writes some files, folders, and parts of topics.json: these are its signs. One is the file `abort.bak`, which
each start of 5.x creates. rmqctl creates it too when it writes in the format of 5.3 or 5.4; otherwise a 5.x store
without messages would look like one of 4.x.

Without these signs, the last byte of the properties tells: brokers up to 4.9.0, and since 5.2, write 0x02 after the
last property, those from 4.9.1 to 5.1.4 do not.

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

    Without a sign of the version, it is 4.9, but one of 5.x if broker.conf sets enabledAppendPropCRC, which only 5.2
    and later have.
    """
    if signs_of_5_4(store):
        return PROFILE_5_4
    if store.conf.writing.property_crc or signs_of_5(store):
        return PROFILE_5_3
    return PROFILE_4_7 if ends_with_separator(store) else PROFILE_4_9


def candidate_versions(store: ReadOnlyStore, profile: Profile) -> tuple[str, ...]:
    """Return the versions of `profile` that may have written the store.

    The last byte of the properties narrows them, unless no version of the profile writes it.
    """
    group = [one for one in map(profile_of, VERSIONS) if one.name == profile.name]
    ends = ends_with_separator(store)
    fitting = [one for one in group if ends in (None, one.ends_properties_with_separator)]
    return tuple(one.version for one in fitting or group)


def shows_version(store: ReadOnlyStore) -> bool:
    """Return whether the store shows which broker version wrote it.

    It does not if it has no sign of 5.x and the first records have no properties.
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

    The majority decides: in a batch, the client writes the properties, and they may end differently. None if the first
    records have no properties.
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

    Such a store has no file `lock` and no sign of 5.x; in every index file, hashSlotCount is the number of entries, and
    none is for UNIQ_KEY. False if the index has no entries.
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

    Brokers of 4.0 and later write them.
    """
    return any(unique_key_hash(message) in hashes for message, hashes in newest_indexed(store))
