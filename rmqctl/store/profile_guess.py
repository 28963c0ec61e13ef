"""Which broker wrote a store, as far as that shows: the profile that every verb goes on with.

First the signs of 5.x: its files, among them `abort.bak`, which each start leaves (ours as 5.3, too, so that a store without a
message is not taken for an older one), and what topics.json has only there. Without them the 0x02 behind the last property, which
comes and goes with versions: there up to 4.9.0, not from 4.9.1 to 5.1.4, there from 5.2 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format.message import Message
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.format.properties import PROPERTY_SEPARATOR
from rmqctl.store.config import TOPICS_CONFIG, table

if TYPE_CHECKING:
    from rmqctl.store.read_only_store import ReadOnlyStore

SAMPLE_RECORDS = 64


def guess_profile(store: ReadOnlyStore) -> Profile:
    """The profile of the broker that wrote the store; 4.9 where nothing shows. enabledAppendPropCRC is a setting of 5.2 and later."""
    if store.conf.writing.property_crc or signs_of_5(store):
        return PROFILE_5_3
    return PROFILE_4_7 if ends_with_separator(store) else PROFILE_4_9


def shows_version(store: ReadOnlyStore) -> bool:
    """Whether anything does show: not in a store of 4.x without a message that has properties."""
    return store.conf.writing.property_crc or bool(signs_of_5(store)) or ends_with_separator(store) is not None


def signs_of_5(store: ReadOnlyStore) -> list[str]:
    """What only 5.x leaves in a store."""
    return store.path.version_signs() + (["attributes in config/topics.json"] if _has_topic_attributes(store) else [])


def _has_topic_attributes(store: ReadOnlyStore) -> bool:
    """Whether topics.json was written by 5.x."""
    version, topics = table(store.config(TOPICS_CONFIG), "dataVersion"), store.listed_topics.values()
    return "stateVersion" in version or any("attributes" in topic for topic in topics if isinstance(topic, dict))


def ends_with_separator(store: ReadOnlyStore) -> bool | None:
    """Whether the properties of the first records that have any end with 0x02. A batch's are its client's: most votes count."""
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
    """3.x: no `lock`, no sign of 5.x, and hashSlotCount counts entries in every index file."""
    if store.path.has_lock_file or store.path.version_signs():
        return False
    headers = [index_file.header() for index_file in store.index.files]
    return bool(headers) and all(header is not None and header.hash_slot_count == header.index_count - 1 for header in headers)
