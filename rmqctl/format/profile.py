"""Profiles of versions that write and answer alike, and how each version starts.

The profile `4.7` is for brokers of 4.0 to 4.9.0, `4.9` for 4.9.1 to 4.9.8, `5.3` for 5.0 to 5.3.4, and `5.4` for 5.4.0
and later. Brokers of one profile may still *start* differently: a start follows the rules of one version
(`start_rules`), from the sources of 4.1.0 to 5.5.1. A new release is one more name in a row of ROWS, or one more row.
`rmqctl.store.recovery.rules` says what the facts mean for a store.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class QueueCut(Enum):
    """The case in which the broker cuts the queues at the log's end."""

    IF_ABNORMAL = "always in an abnormal recovery, never in a normal one"  # up to 4.3.1
    BY_END_BEFORE_SCAN = "if the queues' end before the scan is at or after the log's end"  # 4.3.2 to 5.3.3
    BY_END_AFTER_SCAN = "if the queues' end after the scan is at or after the log's end"  # since 5.3.4


class StartSettings(NamedTuple):
    """The settings of broker.conf that change a start, as the file sets them.

    The defaults are the broker's. A version that does not know a setting ignores it (`start_rules`).
    """

    force_verify_prop_crc: bool = False  # forceVerifyPropCRC, since 5.2.0
    message_index_safe: bool = False  # messageIndexSafe, with messageIndexEnable
    duplication: bool = False  # duplicationEnable
    recheck_reput_offset: bool = False  # recheckReputOffsetFromCq, since 5.0.0
    recover_max_num: int = 10  # commitLogRecoverMaxNum, since 5.4.0; 10 if it is not above 0
    check_offset: bool = False  # checkCommitLogOffsetOnRecover, since 5.5.0
    accelerated: bool = False  # enableAcceleratedRecovery, for queues in files since 5.5.0
    check_crc: bool = True  # checkCRCOnRecover
    # enableMultiDispatch: false in a broker.conf without it; None, taken for true, if there is no broker.conf
    multi_dispatch: bool | None = None
    lmq: bool = False  # enableLmq, since 4.9.3


class StartRules(NamedTuple):
    """The start of one version; the fields with a default also depend on broker.conf."""

    version: str
    stops_loading_at_wrong_length: bool
    """load() leaves out a file of a wrong length, and all later files, and goes on. Otherwise it fails."""
    loads_around_folders: bool
    """load() ignores folders among log or queue files."""
    deletes_empty_last_file: bool
    """load() deletes the last file of a folder if it has 0 bytes."""
    has_batch_queues: bool
    """batchconsumequeue/ is loaded, and `queue.type` of topics.json must match the queue's folder."""
    knows_long_topics: bool
    """V2 records, for topics longer than 127 bytes, are records."""
    knows_ipv6: bool
    """The bits of SYSFLAG for IPv6 hosts make the hosts longer."""
    checks_room: bool
    """A record or blank is bad if its TOTALSIZE is larger than the rest of its file."""
    recovers_from_queues: bool
    """A normal recovery begins near the queues' end, and dispatches what follows it.

    Otherwise, it begins at the third file from the end, and dispatches nothing.
    """
    repeats_by_start: bool
    """A queue skips what begins at or before the start of its last record. Otherwise, at its end or before it."""
    keeps_repeats: bool
    """A message whose queue offset is before the queue's end gets a unit at the end. Otherwise, it gets none."""
    passes_over_wrong_lengths: bool
    """An abnormal recovery goes on after a record whose lengths do not add up to TOTALSIZE."""
    checks_first_record: bool
    """The search for the start file checks the whole first record of a file, and not only its head."""
    recovers_by_logics_offset: bool
    """An abnormal recovery begins by logicsPhysicalOffset and logicsMsgTimestamp of the checkpoint alone."""
    queue_cut: QueueCut
    destroys_queues_without_log: bool
    """Also a normal recovery deletes all queues if the log has no file."""
    dispatches_in_start: bool
    """start() dispatches the records after the queues' end, and waits for this dispatch."""
    expired_queue_begins_at_end: bool
    """The min offset of a queue whose messages are all gone becomes the queue's end."""
    fails_on_empty_last_queue_file: bool
    """load() fails if the last file of a queue has no unit (correctMinOffset)."""
    forgets_min_without_files: bool
    """The min offset of a queue without files becomes 0 (correctMinOffset)."""
    dispatches_to_lmq: bool
    """INNER_MULTI_DISPATCH of a message names further queues for it."""
    light_queues_for_all_topics: bool
    """This is also so for retry, schedule and `rmq_sys_` topics."""
    light_queues_by_id: bool = False
    """A light queue has the queueId of the message, and not 0 (enableMultiDispatch without enableLmq)."""
    needs_properties: bool = False
    """Dispatch fails at a message without properties (4.9.3 with enableMultiDispatch)."""
    values_may_have_separators: bool = True
    """A property whose value has 0x01 inside is a property (since 4.9.1)."""
    recover_max_num: int = 0
    """The number of files, from the end, where the scan may begin at the earliest; 0 for no limit."""
    force_verify_prop_crc: bool = False
    """The checksum in `__CRC32#` is required of each record, and BODYCRC is not checked."""
    requires_dup_info: bool = False
    """A record with properties is bad without DUP_INFO (5.x with duplicationEnable)."""
    dispatches_whole_files: bool = False
    """The dispatch reads a file to its end, even if a wrong TOTALSIZE led it behind the log's end (up to 4.9.8)."""
    knows_confirmed_offset: bool = False
    """load() takes the confirmed offset from the checkpoint (since 5.1.1 with duplicationEnable)."""
    awaits_confirmation: bool = False
    """Nothing is dispatched until its offset is confirmed, which nobody does (4.x with duplicationEnable)."""
    message_index_safe: bool = False
    """The start file must also be older than the checkpoint's indexMsgTimestamp."""
    check_offset: bool = False
    """An abnormal recovery ends the log at a PHYSICALOFFSET outside of its file."""
    accelerated: bool = False
    """An abnormal recovery begins at logicsPhysicalOffset itself, and fails if this is 0."""
    check_crc: bool = True
    """Recovery checks the checksums of records."""

    @property
    def checks_good_records(self) -> bool:
        """Return whether a record that is good by default can be bad by these rules."""
        return self.force_verify_prop_crc or self.requires_dup_info


_4_1_0 = StartRules(
    "4.1.0",
    stops_loading_at_wrong_length=True,
    loads_around_folders=False,
    deletes_empty_last_file=False,
    has_batch_queues=False,
    knows_long_topics=False,
    knows_ipv6=False,
    checks_room=False,
    recovers_from_queues=False,
    repeats_by_start=True,
    keeps_repeats=True,
    passes_over_wrong_lengths=True,
    checks_first_record=False,
    recovers_by_logics_offset=False,
    queue_cut=QueueCut.IF_ABNORMAL,
    destroys_queues_without_log=False,
    dispatches_in_start=False,
    expired_queue_begins_at_end=False,
    fails_on_empty_last_queue_file=False,
    forgets_min_without_files=False,
    dispatches_to_lmq=False,
    light_queues_for_all_topics=True,
)
_4_2_0 = _4_1_0._replace(keeps_repeats=False)
_4_3_2 = _4_2_0._replace(queue_cut=QueueCut.BY_END_BEFORE_SCAN, passes_over_wrong_lengths=False)
_4_5_0 = _4_3_2._replace(
    repeats_by_start=False,
    stops_loading_at_wrong_length=False,
    destroys_queues_without_log=True,
    dispatches_in_start=True,
)
_4_6_0 = _4_5_0._replace(knows_ipv6=True)
_4_9_2 = _4_6_0._replace(stops_loading_at_wrong_length=True)
_4_9_3 = _4_6_0._replace(dispatches_to_lmq=True)
_5_0_0 = _4_9_3._replace(
    has_batch_queues=True,
    dispatches_in_start=False,
    expired_queue_begins_at_end=True,
    fails_on_empty_last_queue_file=True,
)
_5_1_0 = _5_0_0._replace(loads_around_folders=True, knows_long_topics=True)
_5_1_1 = _5_1_0._replace(light_queues_for_all_topics=False)
_5_1_3 = _5_1_1._replace(deletes_empty_last_file=True)
_5_3_2 = _5_1_3._replace(checks_room=True, recovers_from_queues=True)
_5_3_4 = _5_3_2._replace(checks_first_record=True, queue_cut=QueueCut.BY_END_AFTER_SCAN)
_5_4_0 = _5_3_4._replace(recover_max_num=10)
_5_5_0 = _5_4_0._replace(recovers_by_logics_offset=True, fails_on_empty_last_queue_file=False)
_5_5_1 = _5_5_0._replace(forgets_min_without_files=True)

ROWS = (
    ("4.1.0", _4_1_0),
    ("4.2.0 4.3.0 4.3.1", _4_2_0),
    ("4.3.2 4.4.0", _4_3_2),
    ("4.5.0 4.5.1 4.5.2", _4_5_0),
    ("4.6.0 4.6.1 4.7.0 4.7.1 4.8.0 4.9.0 4.9.1", _4_6_0),
    ("4.9.2", _4_9_2),
    ("4.9.3 4.9.4 4.9.5 4.9.6 4.9.7 4.9.8", _4_9_3),
    ("5.0.0", _5_0_0),
    ("5.1.0", _5_1_0),
    ("5.1.1 5.1.2", _5_1_1),
    ("5.1.3 5.1.4 5.2.0 5.3.0 5.3.1", _5_1_3),
    ("5.3.2 5.3.3", _5_3_2),
    ("5.3.4", _5_3_4),
    ("5.4.0", _5_4_0),
    ("5.5.0", _5_5_0),
    ("5.5.1", _5_5_1),
)
_BY_VERSION = {version: row._replace(version=version) for versions, row in ROWS for version in versions.split()}
VERSIONS = tuple(_BY_VERSION)  # all known versions, the oldest first
NO_SETTINGS = StartSettings()


def number_of(version: str) -> tuple[int, ...]:
    """Return a version such as 5.1.4 as numbers, which compare as versions do."""
    return tuple(int(part) for part in version.split("."))


def start_rules(version: str, settings: StartSettings = NO_SETTINGS) -> StartRules:
    """Return how `version`, one of VERSIONS, starts with the settings of broker.conf.

    Settings that the version does not know have no effect. Raises KeyError for an unknown version.
    """
    row, number = _BY_VERSION[version], number_of(version)
    has_logics_offset = row.recovers_by_logics_offset
    return row._replace(
        values_may_have_separators=number >= (4, 9, 1),
        recover_max_num=row.recover_max_num and (settings.recover_max_num if settings.recover_max_num > 0 else 10),
        check_crc=settings.check_crc,
        force_verify_prop_crc=settings.force_verify_prop_crc and settings.check_crc and number >= (5, 2),
        requires_dup_info=settings.duplication and number >= (5,),
        dispatches_whole_files=number < (5,),
        knows_confirmed_offset=settings.duplication and number >= (5, 1, 1),
        awaits_confirmation=settings.duplication and number < (5,),
        dispatches_to_lmq=row.dispatches_to_lmq and settings.multi_dispatch is not False,
        light_queues_by_id=settings.multi_dispatch is True and not settings.lmq,
        needs_properties=version == "4.9.3" and settings.multi_dispatch is True,
        message_index_safe=settings.message_index_safe,
        check_offset=settings.check_offset and has_logics_offset,
        accelerated=settings.accelerated and has_logics_offset,
        dispatches_in_start=row.dispatches_in_start or (settings.recheck_reput_offset and number >= (5,)),
    )


class Profile(NamedTuple):
    """The behaviour of the broker versions of one profile."""

    name: str
    version: str
    """The version whose start is simulated: the one that the user gave, or the usual one of the profile."""
    label: str
    """The name of the broker in messages: the version that the user gave, or the profile's name."""
    ends_properties_with_separator: bool
    """0x02 also follows the last property (MessageDecoder.messageProperties2String)."""
    knows_long_topics: bool
    """V2 records exist, which can have topics longer than 127 bytes."""
    writes_pid_into_abort: bool
    """`abort` has the PID, and the old content of `abort` is moved to `abort.bak` (5.x, MixAll.string2File)."""
    knows_topic_attributes: bool
    """topics.json has `attributes` for each topic, and a stateVersion."""
    overflow_restarts_queue: bool
    """A consumer with an offset far after a queue's end continues at offset 0 (up to 4.9.3).

    This rule is only for queues that begin at 0. In all other cases, the consumer continues at the queue's end.
    """
    expired_queue_begins_at_end: bool
    """The min offset of a queue without remaining messages becomes the queue's end (5.x)."""
    finds_offset_by_store_time: bool
    """Look-ups by time use only store times (5.x).

    Otherwise, look-ups by time first use the modification times of files.
    """
    versions_delay_offsets: bool
    """delayOffset.json has a dataVersion (5.x)."""
    light_queues_for_all_topics: bool
    """LMQ also allows retry, schedule and `rmq_sys_` topics, and queue names without %LMQ% (4.9 to 5.1.0)."""
    half_messages_take_light_offsets: bool
    """Prepared and rollback records also get queue offsets in LMQ queues (since 5.2)."""
    counts_usable_space: bool
    """Disk usage is a whole percentage of the usable space (since 4.9.2).

    Otherwise, disk usage is a fraction of the whole disk.
    """
    force_level_asks: bool
    """Disk usage over the force level starts deletion (5.x).

    Otherwise, disk usage over diskMaxUsedSpaceRatio starts deletion.
    """
    indexes_tags: bool
    """The index also has an entry for TAGS, `topic#T#TAGS` (5.4.0 and later, IndexService.buildIndex)."""
    has_slave_timeout: bool
    """A synchronous master waits for slaveTimeout (since 4.9.3), not for syncFlushTimeout."""
    counts_in_sync_replicas: bool
    """A synchronous master waits for inSyncReplicas brokers (5.x), not for any slave."""


PROFILE_4_7 = Profile(
    "4.7",
    version="4.7.1",
    label="4.7",
    ends_properties_with_separator=True,
    knows_long_topics=False,
    writes_pid_into_abort=False,
    knows_topic_attributes=False,
    overflow_restarts_queue=True,
    expired_queue_begins_at_end=False,
    finds_offset_by_store_time=False,
    versions_delay_offsets=False,
    light_queues_for_all_topics=False,
    half_messages_take_light_offsets=False,
    counts_usable_space=False,
    force_level_asks=False,
    indexes_tags=False,
    has_slave_timeout=False,
    counts_in_sync_replicas=False,
)
PROFILE_4_9 = PROFILE_4_7._replace(
    name="4.9",
    version="4.9.7",
    label="4.9",
    ends_properties_with_separator=False,
    overflow_restarts_queue=False,
    light_queues_for_all_topics=True,
    counts_usable_space=True,
    has_slave_timeout=True,
)
PROFILE_5_3 = Profile(
    "5.3",
    version="5.3.3",
    label="5.3",
    ends_properties_with_separator=True,
    knows_long_topics=True,
    writes_pid_into_abort=True,
    knows_topic_attributes=True,
    overflow_restarts_queue=False,
    expired_queue_begins_at_end=True,
    finds_offset_by_store_time=True,
    versions_delay_offsets=True,
    light_queues_for_all_topics=False,
    half_messages_take_light_offsets=True,
    counts_usable_space=True,
    force_level_asks=True,
    indexes_tags=False,
    has_slave_timeout=True,
    counts_in_sync_replicas=True,
)
PROFILE_5_4 = PROFILE_5_3._replace(name="5.4", version="5.5.0", label="5.4", indexes_tags=True)
NEWEST_PROFILE = PROFILE_5_4
PROFILES = {profile.name: profile for profile in (PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILE_5_4)}


def profile_of(name: str) -> Profile:
    """Return the profile of a name in PROFILES, or of an exact version such as 5.1.1.

    `name` must be in PROFILES or in VERSIONS. The profile of a version starts by the rules of that version.
    """
    if name in PROFILES:
        return PROFILES[name]
    first_of = ((PROFILE_5_4, (5, 4)), (PROFILE_5_3, (5,)), (PROFILE_4_9, (4, 9, 1)), (PROFILE_4_7, (0,)))
    found = next(profile for profile, first in first_of if number_of(name) >= first)
    separator = not (4, 9, 1) <= number_of(name) < (5, 2)
    return found._replace(version=name, label=name, ends_properties_with_separator=separator)
