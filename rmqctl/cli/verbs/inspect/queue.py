"""`rmqctl queue`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_rows, remark
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import COUNT, OFFSET, OUTPUTS, POSITIVE, open_store, output_option, store_argument
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.errors import READ_ALL_HINT, BadRequest, ExitCode, RmqctlError, Unreadable
from rmqctl.format.message import Damage

if TYPE_CHECKING:
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

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
@output_option(*OUTPUTS)
@options_in(asked=QueueOptions)
def command(store: Path, topic: str | None, queue_id: int | None, output: str, asked: QueueOptions) -> int:
    """List the queues of a store, or the units of one queue.

    With TOPIC, `queue` lists the queues of this topic. With TOPIC and QUEUEID, `queue` lists the units of this queue.
    `minOffset` is the queue offset of the queue's oldest message in the log. A unit has the message's physical offset,
    the message's size, and the message's tags code. The tags code is the hash of the tags. For a delayed message, the
    tags code is the delivery time.
    """
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
        rows = _queue_rows(opened, [opened.queues[key] for key in keys])
        print_rows("queue", "queues", rows, output, _QUEUE_KEYS, _columns(_QUEUE_KEYS), head=head)
    unread = [damage for damage in opened.foreign if damage.code in ("unreadable", "link-not-followed")]
    for damage in unread:
        remark(f"{damage.path}: {damage.detail}")
    return int(ExitCode.PARTIAL if unread else ExitCode.CLEAN)


def _columns(keys: tuple[str, ...]) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return the columns of a table. The headings are the keys in capital letters."""
    return {key.upper(): itemgetter(key) for key in keys}


def _no_such_queue(store: ReadOnlyStore, topic: str, queue_id: int | None, what: str) -> RmqctlError:
    from rmqctl.store.read.topic_names import unknown_topic

    if store.is_unread(topic, queue_id):
        return Unreadable(
            "the folder of the queue, or a folder above it, could not be read", path=what, hint=READ_ALL_HINT
        )
    unknown = unknown_topic(store, topic)
    said = f"there is no queue {what}"
    return BadRequest(f"{said}: {unknown}" if unknown else said, hint="`rmqctl queue STORE` lists them")


_UNIT_KEYS = ("queueOffset", "physicalOffset", "size", "tagsCode")
_QUEUE_KEYS = ("topic", "queueId", "minOffset", "maxOffset", "messages")


def _queue_rows(store: ReadOnlyStore, queues: list[UnitQueue]) -> Iterator[Row]:
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
        yield {
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "minOffset": low,
            "maxOffset": high,
            "messages": high - low,
        }


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
