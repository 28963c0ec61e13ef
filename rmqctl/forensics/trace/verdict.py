"""The verdict, which says in one line what happened to a message."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rmqctl.forensics.trace.groups import CONSUMED, WAITING
from rmqctl.forensics.trace.stage import (
    DEAD_LETTER,
    DELAYED,
    DELIVERED,
    HALF,
    IN_ITS_TOPIC,
    RESENT,
    RETRY,
    ROLLBACK,
    STORED,
    TIMER,
)
from rmqctl.format.body.pop_message import PopAck, PopCheckpoint
from rmqctl.format.properties import REAL_TOPIC
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.store.config.topics import DLQ_PREFIX, RETRY_PREFIX, is_broker_topic
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.consumers.consumer_groups import is_broker_group, retry_owner
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rmqctl.forensics.trace.groups import GroupState
    from rmqctl.forensics.trace.stage import Stage

CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"  # half messages that were checked too often
PRODUCER_RETRY_MS_MAX = 60_000  # a producer retries within its timeout, which is 3 s by default; a person takes longer
_TIMES = {1: "once", 2: "twice"}
_NAMES_MAX = 4


def life_verdict(
    stages: Sequence[Stage],
    states: Sequence[GroupState],
    *,
    commit_may_be_lost: bool,
    has_unread_offsets: bool,
    is_left_by_timer: bool,
) -> str:
    """Say in one line what happened to a message.

    `stages` are in order and not empty. `states` come from `group_states`.
    """
    parts = [*_stored(stages), *_transaction(stages, commit_may_be_lost=commit_may_be_lost)]
    parts += _delays(stages, is_left_by_timer=is_left_by_timer)
    parts += _retries(stages, states)
    parts += _pop(stages, states)
    failed = _failed(stages, states) | {known.group for known in states if known.visible_ms is not None}
    parts += _groups(states, failed) or ([] if failed else _no_groups(stages, has_unread_offsets=has_unread_offsets))
    parts += _unreadable(stages) + _damage(stages)
    return ", ".join(parts)


def _stored(stages: Sequence[Stage]) -> Iterator[str]:
    own = [stage for stage in stages if stage.kind in (STORED, RESENT) and stage.topic != GIVEN_UP_TOPIC]
    if not own:
        return
    first, again = own[0], [stage for stage in own if stage.kind == RESENT]
    quick = sum(_is_producer_retry(first, stage) for stage in again)
    batch = sum(stage.kind == STORED and stage.topic == first.topic for stage in own)
    yield f"stored {_times(1 + quick)} by producer retry" if quick else "stored"
    if first.record.path:
        yield "kept in compaction/ alone: the log no longer has it"
    if batch > 1:
        yield f"a batch of {counted(batch, 'message')} with one UNIQ_KEY"
    if len(again) > quick:
        yield f"sent again {_times(len(again) - quick)}"
    elsewhere = sorted({stage.topic for stage in own} - {first.topic})
    if elsewhere:
        yield f"copied to {_names(elsewhere)}"


def _is_producer_retry(first: Stage, again: Stage) -> bool:
    """Return whether a producer sent a message again because no answer came."""
    one, two = first.record.message, again.record.message
    is_same_host = one.born_host.address == two.born_host.address
    return is_same_host and two.born_timestamp - one.born_timestamp < PRODUCER_RETRY_MS_MAX


def _transaction(stages: Sequence[Stage], *, commit_may_be_lost: bool) -> Iterator[str]:
    halves = [stage for stage in stages if stage.kind == HALF]
    commits = [stage for stage in stages if _type(stage) is TransactionType.COMMIT]
    checks = max((number(stage.record.properties.get(CHECK_TIMES)) or 0 for stage in halves + commits), default=0)
    last = f", the last at {rfc3339(halves[-1].stored_at)}" if len(halves) > 1 and not commits else ""
    checked = f" and {counted(checks, 'check')}{last}" if checks else ""
    rollbacks = [stage for stage in stages if stage.kind == ROLLBACK or _type(stage) is TransactionType.ROLLBACK]
    if commits:
        begin = halves[0].stored_at if halves else None
        after = "" if begin is None else f" after {duration(commits[0].stored_at - begin)}"
        yield f"committed{after}{checked}"
    elif rollbacks:
        after = f" after {duration(rollbacks[0].stored_at - halves[0].stored_at)}" if halves else ""
        is_unsure = commit_may_be_lost and all(stage.kind == ROLLBACK for stage in rollbacks)
        yield f"rolled back{after}{checked}" + (", or its commit is lost" if is_unsure else "")
    elif any(stage.topic == GIVEN_UP_TOPIC for stage in stages):
        yield f"the broker gave the transaction up{checked.replace(' and', ' after')}: in {GIVEN_UP_TOPIC}"
    elif halves:
        yield f"half message without commit or rollback{checked.replace(' and', ', after')}"
    elif any(_type(stage) is TransactionType.PREPARED for stage in stages):
        yield "prepared without commit or rollback"


def _type(stage: Stage) -> TransactionType:
    return transaction_type(stage.record.message.sys_flag)


def _delays(stages: Sequence[Stage], *, is_left_by_timer: bool) -> Iterator[str]:
    waits = [
        stage
        for stage in stages
        if stage.kind in (DELAYED, TIMER)
        and stage.group is None
        and not stage.record.properties.get(REAL_TOPIC, "").startswith(RETRY_PREFIX)
    ]
    arrived = [stage for stage in stages if stage.kind == DELIVERED]
    if not waits:
        return
    level = f"by level {waits[0].queue_id + 1}" if waits[0].queue_id >= 0 else "by an unknown level"
    how = "by timer" if waits[0].kind == TIMER else level
    if arrived:
        yield f"delayed {how}, delivered after {duration(arrived[0].stored_at - waits[0].stored_at)}"
    elif not any(stage.kind in IN_ITS_TOPIC for stage in stages):
        time = None if waits[-1].due is None else rfc3339(waits[-1].due)
        left = "; nothing leads a broker to it (`rmqctl explain timer-undelivered`)" if is_left_by_timer else ""
        yield f"delayed {how}, not delivered" + (f"; due at {time}" if time else "") + left


def _retries(stages: Sequence[Stage], states: Sequence[GroupState]) -> Iterator[str]:
    dead = [stage for stage in stages if stage.kind == DEAD_LETTER]
    for topic, of_topic in groupby(sorted(dead, key=lambda stage: stage.topic), key=lambda stage: stage.topic):
        times = max(stage.record.message.reconsume_times for stage in of_topic)
        failed = f"failed {_times(times)}" if times > 0 else "failed"
        yield f"{failed} at {topic.removeprefix(DLQ_PREFIX)}, now in {topic}"
    lost = {stage.topic.removeprefix(DLQ_PREFIX) for stage in dead}
    retried: dict[str, list[Stage]] = {}
    for stage in stages:
        topic = _retry_topic(stage)
        if topic is not None and _retrying(topic, states) not in lost:
            retried.setdefault(topic, []).append(stage)
    for topic, copies in sorted(retried.items()):
        times = max(copy.record.message.reconsume_times for copy in copies)
        yield f"waits for retry {times} in {topic}" if _waits(copies[-1], states) else _retried(topic, times)


def _retry_topic(stage: Stage) -> str | None:
    # None for other records; a delayed retry names its %RETRY% topic in the property REAL_TOPIC
    topic = stage.record.properties.get(REAL_TOPIC, "") if stage.kind == DELAYED else stage.topic
    return topic if topic.startswith(RETRY_PREFIX) and stage.kind in (RETRY, DELAYED) else None


def _retrying(topic: str, states: Sequence[GroupState]) -> str:
    return retry_owner(topic.removeprefix(RETRY_PREFIX), {known.group for known in states})


def _waits(copy: Stage, states: Sequence[GroupState]) -> bool:
    # not if no offset of the group is known
    if copy.kind == DELAYED:
        return True
    of_group = [known for known in states if known.group == _retrying(copy.topic, states) and known.state == CONSUMED]
    return bool(of_group) and not any(known.stage == copy for known in of_group)


def _failed(stages: Sequence[Stage], states: Sequence[GroupState]) -> set[str]:
    """Return the groups whose last attempt at the message failed.

    They have a dead letter or a waiting retry. A later record in the message's own topic cancels all failures.
    """
    failed: set[str] = set()
    for stage in stages:
        topic = _retry_topic(stage)
        if stage.kind in IN_ITS_TOPIC:
            failed.clear()
        elif stage.kind == DEAD_LETTER:
            failed.add(stage.topic.removeprefix(DLQ_PREFIX))
        elif topic is not None and _waits(stage, states):
            failed.add(_retrying(topic, states))
        elif topic is not None:
            failed.discard(_retrying(topic, states))
    return failed


def _retried(topic: str, times: int) -> str:
    return f"retried {_times(times)} in {topic}" if times else f"stored in {topic}"


def _pop(stages: Sequence[Stage], states: Sequence[GroupState]) -> Iterator[str]:
    """Yield what each group did with the message that it popped last.

    A consumer that puts a message off acknowledges it, and pops it once more (ChangeInvisibleTimeProcessor).
    """
    pops = [stage.pop for stage in stages if stage.pop is not None]
    again: dict[str, int] = {}
    for known in states:
        if known.visible_ms is not None:
            again[known.group] = min(known.visible_ms, again.get(known.group, known.visible_ms))
    for group in sorted({*again, *(pop.c for pop in pops)}):
        popped = [pop.pt for pop in pops if pop.c == group and isinstance(pop, PopCheckpoint)]
        acknowledged = {pop.pt for pop in pops if pop.c == group and isinstance(pop, PopAck)}
        if group in again:
            time = rfc3339(again[group])
            yield f"popped and not acknowledged by {group}" + (f": comes again at {time}" if time else "")
        elif popped:
            yield f"popped{' and acknowledged' if max(popped) in acknowledged else ''} by {group}"
        else:
            yield f"acknowledged by {group}"


def _groups(states: Sequence[GroupState], failed: Collection[str]) -> list[str]:
    """Return texts on groups that have consumed the message, and on waiting groups.

    The broker's own groups and topics are left out. A group in `failed` does not count as a consumer, and is listed if
    a copy of the message waits for it.
    """
    asked = [known for known in states if not is_broker_group(known.group) and not is_broker_topic(known.stage.topic)]
    of_groups: dict[str, list[GroupState]] = {}
    for known in asked:
        if known.state in (CONSUMED, WAITING) and not known.stage.topic.startswith(DLQ_PREFIX):
            of_groups.setdefault(known.group, []).append(known)
    consumed = sorted(group for group, found in of_groups.items() if all(one.state == CONSUMED for one in found))
    filtered = [group for group in consumed if any(known.filtered for known in of_groups[group])]
    taken = [group for group in consumed if group not in filtered and group not in failed]
    past = [group for group in taken if all(known.stage.record.message.placeholder for known in of_groups[group])]
    taken = [group for group in taken if group not in past]
    parts = [f"consumed by {_names(taken)}"] if taken else []
    parts += [f"{_names(past)} {'is' if len(past) == 1 else 'are'} past its place"] if past else []
    parts += [f"passed over by {_names(filtered)}, whose expression leaves out the tag"] if filtered else []
    for group in sorted(of_groups.keys() - set(consumed)):
        found = of_groups[group]
        late = [known for known in found if known.state == WAITING]
        share = f"{len(late)} of {len(found)} copies wait" if len(late) < len(found) else "waits"
        behind = max(known.behind or 0 for known in late)
        parts.append(f"{share} for {group} ({counted(behind, 'message')} before it)")
    return parts


def _no_groups(stages: Sequence[Stage], *, has_unread_offsets: bool) -> list[str]:
    is_consumable = any(stage.kind in IN_ITS_TOPIC and not is_broker_topic(stage.topic) for stage in stages)
    if not is_consumable:
        return []
    unknown = "whether a group consumed it is not known: the offsets in config/ are in RocksDB, and were not read"
    return [unknown if has_unread_offsets else "no group has an offset in its queue"]


def _unreadable(stages: Sequence[Stage]) -> list[str]:
    # dead letters wait for an operator
    whys = dict.fromkeys(stage.why_not for stage in stages if stage.why_not and stage.kind != DEAD_LETTER)
    return [f"no consumer can read it there: {why}" for why in whys]


def _damage(stages: Sequence[Stage]) -> list[str]:
    records = {stage.record.place: stage.record for stage in stages}
    damaged = [record for record in records.values() if record.damage is not None]
    parts = [f"{len(damaged)} of {counted(len(records), 'record')} damaged"] if damaged else []
    codes = [code for record in records.values() if (code := record.message.placeholder) is not None]
    if codes:
        replaced = f"{len(codes)} of {counted(len(records), 'record')}"
        parts.append(f"a placeholder replaces {replaced} ({', '.join(sorted(set(codes)))})")
    lost = [stage for stage in stages if stage.reachable is False and queue_destinations(stage.record.message)]
    return parts + ([f"no queue leads to {len(lost)} {'copy' if len(lost) == 1 else 'copies'}"] if lost else [])


def _times(count: int) -> str:
    return _TIMES.get(count, f"{count} times")


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def number(text: str | None) -> int | None:
    """Return the number that a property holds, or None."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None
