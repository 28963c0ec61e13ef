"""Profiles: the broker versions of one profile behave in the same way.

The profile `4.7` is for brokers of 4.0 to 4.9.0, and `4.9` for 4.9.1 to 4.9.8. The profile `5.3` is for brokers of 5.0
to 5.3.4, and `5.4` for 5.4.0 and later.
"""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """The behaviour of the broker versions of one profile."""

    name: str
    ends_properties_with_separator: bool
    """Whether 0x02 also follows the last property (MessageDecoder.messageProperties2String)."""
    knows_long_topics: bool
    """Whether V2 records exist, which can have topics longer than 127 bytes."""
    writes_pid_into_abort: bool
    """Whether `abort` has the PID, and the old content of `abort` is moved to `abort.bak` (5.x, MixAll.string2File)."""
    knows_topic_attributes: bool
    """Whether topics.json has `attributes` for each topic, and a stateVersion."""
    overflow_restarts_queue: bool
    """Whether a consumer with an offset far after a queue's end continues at offset 0 (up to 4.9.3).

    This rule is only for queues that begin at 0. In all other cases, the consumer continues at the queue's end.
    """
    expired_queue_begins_at_end: bool
    """Whether the min offset of a queue without remaining messages becomes the queue's end (5.x)."""
    finds_offset_by_store_time: bool
    """Whether look-ups by time use only store times (5.x).

    Otherwise, look-ups by time first use the modification times of files.
    """
    versions_delay_offsets: bool
    """Whether delayOffset.json has a dataVersion (5.x)."""
    dispatches_to_lmq: bool
    """Whether brokers use the property INNER_MULTI_DISPATCH (since 4.9.3)."""
    light_queues_for_all_topics: bool
    """Whether LMQ also allows retry, schedule and `rmq_sys_` topics, and queue names without %LMQ% (4.9 to 5.1.0)."""
    half_messages_take_light_offsets: bool
    """Whether prepared and rollback records also get queue offsets in LMQ queues (since 5.2)."""
    loads_around_folders: bool
    """Whether a start of the broker ignores folders among log or queue files, and deletes an empty last file (5.x)."""
    checks_room: bool
    """Whether a record or blank is invalid if its TOTALSIZE is larger than the rest of its file (5.x)."""
    recovers_from_queues: bool
    """Whether a normal recovery begins at the log file that contains the queues' end (since 5.3.2).

    Otherwise, a normal recovery begins at the third file from the end of the log.
    """
    dispatches_in_start: bool
    """Whether start() dispatches the records after the queues' end, and waits for this dispatch (4.x)."""
    counts_usable_space: bool
    """Whether disk usage is a whole percentage of the usable space (since 4.9.2).

    Otherwise, disk usage is a fraction of the whole disk.
    """
    force_level_asks: bool
    """Whether disk usage over the force level starts deletion (5.x).

    Otherwise, disk usage over diskMaxUsedSpaceRatio starts deletion.
    """
    indexes_tags: bool
    """Whether the index also has an entry for TAGS, `topic#T#TAGS` (5.4.0 and later, IndexService.buildIndex)."""
    has_slave_timeout: bool
    """Whether a synchronous master waits for slaveTimeout (since 4.9.3), not for syncFlushTimeout."""
    counts_in_sync_replicas: bool
    """Whether a synchronous master waits for inSyncReplicas brokers (5.x), not for any slave."""


PROFILE_4_7 = Profile(
    "4.7",
    ends_properties_with_separator=True,
    knows_long_topics=False,
    writes_pid_into_abort=False,
    knows_topic_attributes=False,
    overflow_restarts_queue=True,
    expired_queue_begins_at_end=False,
    finds_offset_by_store_time=False,
    versions_delay_offsets=False,
    dispatches_to_lmq=False,
    light_queues_for_all_topics=False,
    half_messages_take_light_offsets=False,
    loads_around_folders=False,
    checks_room=False,
    recovers_from_queues=False,
    dispatches_in_start=True,
    counts_usable_space=False,
    force_level_asks=False,
    indexes_tags=False,
    has_slave_timeout=False,
    counts_in_sync_replicas=False,
)
PROFILE_4_9 = PROFILE_4_7._replace(
    name="4.9",
    ends_properties_with_separator=False,
    overflow_restarts_queue=False,
    dispatches_to_lmq=True,
    light_queues_for_all_topics=True,
    counts_usable_space=True,
    has_slave_timeout=True,
)
PROFILE_5_3 = Profile(
    "5.3",
    ends_properties_with_separator=True,
    knows_long_topics=True,
    writes_pid_into_abort=True,
    knows_topic_attributes=True,
    overflow_restarts_queue=False,
    expired_queue_begins_at_end=True,
    finds_offset_by_store_time=True,
    versions_delay_offsets=True,
    dispatches_to_lmq=True,
    light_queues_for_all_topics=False,
    half_messages_take_light_offsets=True,
    loads_around_folders=True,
    checks_room=True,
    recovers_from_queues=True,
    dispatches_in_start=False,
    counts_usable_space=True,
    force_level_asks=True,
    indexes_tags=False,
    has_slave_timeout=True,
    counts_in_sync_replicas=True,
)
PROFILE_5_4 = PROFILE_5_3._replace(name="5.4", indexes_tags=True)
NEWEST_PROFILE = PROFILE_5_4
PROFILES = {profile.name: profile for profile in (PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILE_5_4)}
