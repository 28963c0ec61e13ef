"""Plan which files RocketMQ's clean services would delete.

These are CleanCommitLogService (`expired_log.py`) and CleanConsumeQueueService (`expired_queues.py`). Planning does not
change the store. One plan covers many rounds of a broker, so that one run of `clean` deletes the same files as a broker
in one hour of deleteWhen.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.logfile.system.storage import Kind
from rmqctl.operations.clean.disk_budget import Room
from rmqctl.operations.clean.expired_log import ExpiredLog
from rmqctl.operations.clean.expired_queues import ExpiredQueues, stored_bytes
from rmqctl.operations.clean.log_files import ahead, log_files
from rmqctl.operations.clean.missing_queues import missing_queue
from rmqctl.operations.clean.pending_messages import Outstanding
from rmqctl.operations.clean.plan_types import ExpiryPlan, UnreadTopic, is_link
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import TOPICS_CONFIG
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.consumers.consumer_groups import unreadable_group_files
from rmqctl.store.read.consumers.consumer_offsets import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET
from rmqctl.store.read.known_topics import KnownTopics
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.profile import Profile
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.operations.clean.disk_use import DiskUse
    from rmqctl.operations.clean.plan_types import FileDecision, MinOffsetAdvance
    from rmqctl.store.config.clean_config import ExpirySettings
    from rmqctl.store.read.read_only_store import ReadOnlyStore

GROUPS_NAMED = 5


def plan_expiry(
    store: ReadOnlyStore,
    settings: ExpirySettings,
    profile: Profile,
    *,
    now_ms: int,
    hour: int | None = None,
    disks: Sequence[DiskUse],
    logics_disk: DiskUse,
) -> ExpiryPlan:
    """Return the plan of the files to delete at the time `now_ms`.

    `hour` is compared with deleteWhen (None: the local hour of `now_ms`). `disks` are the disks of the log's folders
    (store.path.commitlogs), `logics_disk` is that of the consume queues' folder.

    The caller must check first that all of `store` is readable: an unreadable part of the log may look like a gap.
    Raises OSError, BadRequest if `now_ms` is not a date, and Unreadable if messages must be protected, but cannot be
    counted.
    """
    local = _local(now_ms)
    hour = local.hour if hour is None else hour
    files = log_files(store)
    outstanding = Outstanding(store, [one.file for one in files[:-1]])
    unknown = [*_unknown_offsets(store), *outstanding.problems]
    if unknown and settings.protect_unconsumed:
        raise Unreadable(
            f"cannot tell which messages are not consumed yet, so cannot protect them: {unknown[0]}",
            path=str(store.path.root),
        )
    room = Room(settings, profile, disks, logics_disk, stored_bytes(store))
    log = ExpiredLog(files, settings, room, outstanding, now_ms=now_ms, hour=hour)
    log.decide()
    if settings.protect_unconsumed:
        _check_queues(store, [one.file for one in files[: len(log.removed)]])

    min_offset = store.commit_log.min_offset
    new_min_offset = files[len(log.removed)].file.file_from_offset if log.removed else min_offset
    rest = ExpiredQueues(store, min_offset, new_min_offset, unused_topics=settings.unused_topics)
    with store.storage.keeping_small_files():
        rest.look()
    decisions = (*log.decisions(), *ahead(store, len(files)), *rest.decisions)
    warnings = (
        *(f"not sure which messages still wait for a consumer: {what}" for what in unknown),
        *_backups_used(store),
        *log.warnings(),
        *rest.warnings,
        *_timer_warnings(rest.rises),
        *(_warnings_of_groups(outstanding) if settings.protect_unconsumed else ()),
        *_link_warnings(store, decisions),
        *(_epoch_warnings(store) if log.removed else ()),
    )
    return ExpiryPlan(
        trigger=log.trigger,
        reason=log.reason,
        hour=hour,
        time_zone=f"{local.tzname()} (UTC{local:%z})",
        files=decisions,
        min_phy_offset=min_offset,
        new_min_phy_offset=new_min_offset,
        rises=tuple(rest.rises),
        warnings=warnings,
        folders=tuple(rest.folders),
        unread=_unread_topics(rest.rises, outstanding),
    )


def _check_queues(store: ReadOnlyStore, files: Sequence[MappedFile]) -> None:
    # without a queue's folder, nothing shows which groups have not consumed its messages yet
    found = missing_queue(store, files)
    if found is not None:
        what = f"queue {found.topic} {found.queue_id} does not exist, and the log has messages of it"
        path = f"{store_path.CONSUMEQUEUE}/{found.topic}/{found.queue_id}"
        raise Unreadable(what, path=path, offset=found.physical_offset, hint=_way_back(store, found.topic))


def _way_back(store: ReadOnlyStore, topic: str) -> str:
    rebuilds = "`rmqctl rebuild STORE queues` rebuilds it from the log"
    if topic in KnownTopics(store):
        return rebuilds
    return (
        f"list the topic in {store_path.CONFIG}/{TOPICS_CONFIG}, then {rebuilds}; or clean without --protect-unconsumed"
    )


def _local(now_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(now_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise BadRequest(f"{now_ms} ms since 1970 is no date that this host knows") from error


def _unknown_offsets(store: ReadOnlyStore) -> list[str]:
    unreadable = [*unreadable_group_files(store), *(one for one in [store.config(DELAY_OFFSET)] if one.content is None)]
    unknown = [f"{store_path.CONFIG}/{config.name}: {config.problem}" for config in unreadable]
    consumer_offset = store.config(CONSUMER_OFFSET)
    is_missing = consumer_offset.source is None and consumer_offset.content is not None
    return (
        [*unknown, f"{store_path.CONFIG}/{CONSUMER_OFFSET} is missing, and with it how far each group is"]
        if is_missing
        else unknown
    )


def _backups_used(store: ReadOnlyStore) -> list[str]:
    """Return a warning for each offset file that was read from its `.bak` file.

    The offsets in a `.bak` file may be older than the lost offsets.
    """
    files = [store.config(name) for name in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, DELAY_OFFSET)]
    found = [config for config in files if config.problem]
    return [f"{config.problem}: the offsets of {config.source.name} count" for config in found if config.source]


def _timer_warnings(rises: Sequence[MinOffsetAdvance]) -> list[str]:
    count = sum(rise.new_min_offset - rise.min_offset for rise in rises if rise.topic == TIMER_TOPIC)
    return (
        [f"{count} timer messages ({TIMER_TOPIC}) are in files that go: whether all were delivered is not known"]
        if count
        else []
    )


def _warnings_of_groups(outstanding: Outstanding) -> list[str]:
    groups = outstanding.groups_without_topic
    names = ", ".join(groups[:GROUPS_NAMED]) + (
        f" and {len(groups) - GROUPS_NAMED} more" if len(groups) > GROUPS_NAMED else ""
    )
    what = f"config/ does not say which topics {names} will read: of topics that other groups read nothing is kept for"
    return [f"{what} {'it' if len(groups) == 1 else 'them'}"] if groups else []


def _unread_topics(rises: Sequence[MinOffsetAdvance], outstanding: Outstanding) -> tuple[UnreadTopic, ...]:
    found: dict[str, int] = {}
    for rise in rises:
        if outstanding.has_no_reader(rise.topic):
            found[rise.topic] = found.get(rise.topic, 0) + rise.new_min_offset - rise.min_offset
    return tuple(UnreadTopic(topic, messages) for topic, messages in sorted(found.items()))


def _link_warnings(store: ReadOnlyStore, decisions: Sequence[FileDecision]) -> list[str]:
    links = [
        decision.path
        for decision in decisions
        if decision.goes and is_link(store.storage, store.path.root / decision.path)
    ]
    what = counted(len(links), "file")
    return (
        [f"{what} to delete, the first {links[0]}, only a link: what it leads to stays, and keeps its space"]
        if links
        else []
    )


def _epoch_warnings(store: ReadOnlyStore) -> list[str]:
    """Return warnings about epochs that 5.x drops in controller mode.

    A broker drops an epoch when it deletes the log file in which the epoch ends
    (AutoSwitchHAService.truncateEpochFilePrefix).
    """
    if store.storage.entry(store.path.part(store_path.EPOCH_FILE)).kind is Kind.MISSING:
        return []
    return [
        (
            f"{store_path.EPOCH_FILE} (controller mode) stays as it is: the broker drops the epochs of what is gone at "
            "its own next deletion"
        )
    ]
