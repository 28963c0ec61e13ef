"""`rmqctl queue`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_line_of_text, print_rows, remark
from rmqctl.cli.output.table import heading_of
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import COUNT, OFFSET, OUTPUTS, POSITIVE, open_store, output_option, store_argument
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.errors import READ_ALL_HINT, BadRequest, ExitCode, RmqctlError, Unreadable
from rmqctl.format.message import Damage
from rmqctl.format.properties import KEYS
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.serve.static_queues import static_queues
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.serve.static_queues import StaticPiece
    from rmqctl.store.timer.timer_message import TimerMessage

Row = dict[str, Any]


@dataclass(frozen=True)
class QueueOptions:
    """The options of `rmqctl queue` that select units by their queue offsets."""

    from_offset: int | None = None
    to_offset: int | None = None
    limit: int | None = None
    tail: int | None = None


@click.command(
    cls=Verb,
    exit_codes=STORE_VERB,
    examples="""
        # every queue with its first and last offset
        rmqctl queue store
        # the queues of a topic
        rmqctl queue store OrderPaid
        # the last units of a queue
        rmqctl queue store OrderPaid 2 --tail 5
        # the timer messages that wait, and when they are due
        rmqctl queue store --timer
        # some units for a script
        rmqctl queue store OrderPaid 2 --from-offset 100 --limit 10 -o jsonl
    """,
)
@store_argument
@click.argument("topic", required=False)
@click.argument("queue_id", metavar="[QUEUEID]", required=False, type=OFFSET)
@click.option(
    "--from-offset",
    type=OFFSET,
    help="Begin at this queue offset.  [default: the queue's oldest message in the log]",
)
@click.option("--to-offset", type=OFFSET, help="Stop before this queue offset.")
@click.option("--limit", type=COUNT, help="Print at most this many units.")
@click.option("--tail", type=POSITIVE, help="Print at most this many units, from the end of the queue.")
@click.option(
    "--timer", is_flag=True, help="List the timer messages (5.x) that a start now would deliver, and when they are due."
)
@output_option(*OUTPUTS)
@options_in(asked=QueueOptions)
def command(store: Path, topic: str | None, queue_id: int | None, timer: bool, output: str, asked: QueueOptions) -> int:
    """List queues, the units of one queue, or the timer messages that wait.

    With TOPIC, `queue` lists the queues of this topic. With TOPIC and QUEUEID, `queue` lists the units of this queue.
    `minOffset` is the queue offset of the queue's oldest message in the log. A unit has the message's physical offset,
    the message's size, and the message's tags code. The tags code is the hash of the tags. For a delayed message, the
    tags code is the delivery time.

    A queue of a static topic (5.x) also has the globalId and the offsets under which clients see it, from
    config/topicQueueMapping.json.

    With --timer, `queue` follows timerlog/, timerwheel and config/timercheck as a start of the broker does: the rows
    are what it delivers, a message twice if it comes twice. TOPIC is then the topic to which the messages go. stderr
    says how many messages wait that nothing leads to.
    """
    if timer:
        if queue_id is not None or asked != QueueOptions():
            raise click.UsageError("with --timer, give at most a TOPIC")
        return _list_timers(open_store(store), topic, output)
    if queue_id is None and asked != QueueOptions():
        raise click.UsageError(
            "--from-offset, --to-offset, --limit and --tail select units of one queue: give TOPIC and QUEUEID"
        )
    opened = open_store(store)
    head = {"store": str(store)}
    if topic is not None and queue_id is not None:
        queue = opened.queues.get((topic, queue_id))
        if queue is None:
            raise _no_such_queue(opened, topic, queue_id, f"{topic}/{queue_id}")
        units = _units(queue, opened.commit_log.min_offset, asked)
        print_rows("queue", "units", units, output, (*_UNIT_KEYS, "batchSize"), _columns(_UNIT_KEYS), head=head)
    else:
        keys = [key for key in sorted(opened.queues) if topic in (None, key[0])]
        if topic is not None and not keys:
            raise _no_such_queue(opened, topic, None, f"of topic {topic!r}")
        static = static_queues(opened)
        rows = _queue_rows(opened, [opened.queues[key] for key in keys], static)
        columns = _QUEUE_KEYS + (_STATIC_KEYS if any(key in static for key in keys) else ())
        print_rows("queue", "queues", rows, output, columns, _columns(columns), head=head)
    unread = [damage for damage in opened.foreign if damage.code in ("unreadable", "link-not-followed")]
    for damage in unread:
        remark(f"{damage.path}: {damage.detail}")
    return int(ExitCode.PARTIAL if unread else ExitCode.CLEAN)


def _columns(keys: tuple[str, ...]) -> dict[str, Callable[[dict[str, Any]], Any]]:
    return {heading_of(key): methodcaller("get", key) for key in keys}


def _no_such_queue(store: ReadOnlyStore, topic: str, queue_id: int | None, what: str) -> RmqctlError:
    from rmqctl.store.read.topic_names import unknown_topic

    if store.is_unread(topic, queue_id):
        return Unreadable(
            "the folder of the queue, or a folder above it, could not be read", path=what, hint=READ_ALL_HINT
        )
    unknown = unknown_topic(store, topic)
    said = f"there is no queue {what}"
    return BadRequest(f"{said}: {unknown}" if unknown else said, hint="`rmqctl queue STORE` lists them")


_TIMER_KEYS = ("dueTimestamp", "dueTime", "overdue", "topic", "queueId", "uniqKey", "keys", "physicalOffset")
_UNIT_KEYS = ("queueOffset", "physicalOffset", "size", "tagsCode")
_QUEUE_KEYS = ("topic", "queueId", "minOffset", "maxOffset", "messages")
_STATIC_KEYS = ("globalId", "staticMinOffset", "staticMaxOffset")


def _list_timers(store: ReadOnlyStore, topic: str | None, output: str) -> int:
    from rmqctl.forensics.groups.waiting_timers import timers_by_queues, to_come
    from rmqctl.store.read.consumers.timer_check import has_only_timers, has_timer
    from rmqctl.store.timer.timer_message import MS_MAX
    from rmqctl.store.timer.timer_start import timer_start, to_deliver

    is_kept = has_timer(store)
    start = timer_start(store, store.opened_at)
    found = [one for one in to_come(store, start) if topic in (None, one.topic)] if is_kept else []
    found.sort(key=lambda one: (one.due_ms or 0, one.physical_offset))
    rows = (_timer_row(store, one) for one in found)
    head = {"store": str(store.path.root)}
    print_rows("queue", "timers", rows, output, _TIMER_KEYS, _columns(_TIMER_KEYS), head=head)
    if not found and output == "table":
        print_line_of_text("no timer message waits that a start would deliver")
    waiting = {one.physical_offset for one in timers_by_queues(store, MS_MAX).waiting() if topic in (None, one.topic)}
    missing = waiting.difference(one.physical_offset for one in found) if is_kept else set()
    in_time = to_deliver(store, timer_start(store)) if missing else ()
    never = missing.difference(one.physical_offset for one in in_time)
    again = len(found) - (len(waiting) - len(missing))
    repair = f"`rmqctl rebuild {quoted(store.path.root)} timers --dry-run`"
    if never:
        why = f" ({start.path}: {start.refused or start.stuck})" if start.path else start.skips and f" ({start.skips})"
        remark(f"{counted(len(never), 'more message')} wait, and nothing leads to them{why}: {repair}")
    if late := missing - never:
        remark(f"{counted(len(late), 'more message')} wait, over 7 days late: a start passes over them: {repair}")
    if again > 0 and store.queue(TIMER_TOPIC, 0) is not None:
        stays = start.rows and not has_only_timers(store)
        where = " (rmqctl leaves the database as it is)" if stays else f": {repair}"
        remark(f"{counted(again, 'row')} of messages that were delivered or deleted before{where}")
    start.is_slow = True
    more = sum(topic in (None, one.topic) for one in to_deliver(store, start)) - len(found) if is_kept else 0
    if more > 0 and store.lock_holder() is None:
        remark(f"{counted(more, 'deleted message')} can come, too, as a start reads them again: {repair}")
    return int(ExitCode.CLEAN)


def _timer_row(store: ReadOnlyStore, timer: TimerMessage) -> Row:
    message = store.commit_log.message_at(timer.physical_offset)
    due_ms = timer.due_ms or 0
    return {
        "dueTimestamp": due_ms,
        "dueTime": rfc3339(due_ms),
        "overdue": due_ms <= store.opened_at,
        "topic": timer.topic,
        "queueId": timer.queue_id,
        "uniqKey": timer.unique_key,
        "keys": None if message is None else message.properties.get(KEYS),
        "physicalOffset": timer.physical_offset,
    }


def _queue_rows(store: ReadOnlyStore, queues: list[UnitQueue], static: dict[QueueKey, StaticPiece]) -> Iterator[Row]:
    """Yield a row for each queue.

    For an unreadable queue, yield no row, and add a Damage to `store.foreign`.
    """
    for queue in queues:
        try:
            low, high = queue.min_and_max(store.commit_log.min_offset)
        except OSError as error:
            path = f"{queue.topic}/{queue.queue_id}"
            store.foreign.append(Damage("unreadable", 0, 0, f"the queue cannot be read: {error.strerror}", path=path))
            continue
        queue.queue.close()
        row = {
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "minOffset": low,
            "maxOffset": high,
            "messages": high - low,
        }
        piece = static.get((queue.topic, queue.queue_id))
        yield (
            row
            if piece is None
            else row | dict(zip(_STATIC_KEYS, (piece.global_id, piece.offset(low), piece.offset(high)), strict=True))
        )


def _units(queue: UnitQueue, min_physical_offset: int, asked: QueueOptions) -> Iterator[Row]:
    start = asked.from_offset if asked.from_offset is not None else queue.min_offset(min_physical_offset)
    end = queue.max_offset if asked.to_offset is None else min(asked.to_offset, queue.max_offset)
    units = queue.units(start, end)
    if asked.tail is not None:
        units = iter(deque(queue.units(max(start, end - asked.tail), end), maxlen=asked.tail))
    for unit in islice(units, asked.limit):
        row = {
            "queueOffset": unit.queue_offset,
            "physicalOffset": unit.physical_offset,
            "size": unit.size,
            "tagsCode": unit.tags_code,
        }
        yield row if unit.batch_size == 1 else row | {"batchSize": unit.batch_size}
