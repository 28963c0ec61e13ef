"""`rmqctl lag`."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_rows, remark
from rmqctl.cli.shared.options import OUTPUTS, open_store, output_option, store_argument
from rmqctl.cli.shared.times import UNIT_MS
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import ExitCode
from rmqctl.format.timestamp import duration, rfc3339
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.forensics.groups.lag import Bound, GroupLag, Lag, QueueLag
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
Cells = dict[str, Callable[[Row], Any]]
NO_OFFSET = "none"
ENDS = ("group", "topic", "queueId", "minOffset", "maxOffset")
OLDEST = ("oldestStoreTimestamp", "oldestStoreTime", "oldestAgeMs")
KEYS = (*ENDS, "offset", "behind", *OLDEST, "outside", "popped")
OUTSIDE = {"before": "before the queue's begin", "after": "after the queue's end"}
MEANINGS = {
    "before": "messages that the group has not consumed were deleted",
    "after": "the group may skip new messages (`rmqctl explain offset-beyond-queue`)",
}


class BoundType(click.ParamType):  # type: ignore[type-arg]
    """The type of a limit: a number of messages, or an age such as 10m."""

    name = "N|AGE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Bound:
        """Parse a limit such as 1000 or 10m."""
        from rmqctl.forensics.groups.lag import Bound

        text = str(value)
        digits = text.rstrip("mshdw")
        unit = text.removeprefix(digits)
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18 and unit in ("", *UNIT_MS)):
            self.fail(f"{text!r} is neither a number of messages nor an age such as 90s, 10m or 2h", param, ctx)
        return Bound(age_ms=int(digits) * UNIT_MS[unit]) if unit else Bound(messages=int(digits))


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # every group, and how far it is behind in each queue
        rmqctl lag store
        # one group
        rmqctl lag store billing
        # for monitoring: exit with 1 if a queue has over 1000 unconsumed messages
        rmqctl lag store billing --max-behind 1000
        # exit with 1 if billing is over 10 minutes behind the log's last message
        rmqctl lag store billing --max-behind 10m
        # queues with messages to consume
        rmqctl lag store -o json | jq '.groups[] | select(.behind > 0)'
        # the messages that billing has not consumed
        rmqctl dump store --group billing --unconsumed
    """,
)
@store_argument
@click.argument("group", required=False)
@click.option(
    "--max-behind",
    type=BoundType(),
    help="With N, exit with 1 if a group is more than N messages behind in a queue. With AGE (90s, 10m, 2h), exit "
    "with 1 if a group's oldest unconsumed message is more than AGE older than the log's last message. Run `lag` with "
    "N, too: the age only grows when messages arrive. With N or AGE, exit with 1 if an offset is outside its queue.",
)
@output_option(*OUTPUTS)
def command(
    store: Path, broker_conf: Path | None, follow_links: bool, group: str | None, max_behind: Bound | None, output: str
) -> int:
    """Show how far each consumer group is behind, by topic and queue.

    `behind` counts the messages that the group has not consumed. If the group has no offset for a queue, all messages
    of the queue count, and the table shows "none" (null in JSON). `oldest` is the store time of the oldest message that
    the group has not consumed. The age of the oldest message is measured until the store time of the log's last
    message, not until now. In the row of a group, `behind` is the sum for all queues of the group, including %RETRY%
    topics. `retry` counts the messages of `behind` that are in %RETRY% topics. `delayed` counts the retries that still
    wait for their delay. `dlq` counts the messages in the group's dead-letter queue. `popped` counts the messages that
    the group popped and has not acknowledged. CSV and JSON Lines have a row for each queue.

    `lag` lists queues of topics.json that have no files and no offset, unless these queues need more than 10,000 rows.
    stderr and the JSON key `unlisted` report the number of omitted rows.

    `outside` marks an offset that is not in its queue. If an offset is before the first message of the queue, messages
    were deleted before the group consumed them. If an offset is after the queue's end, messages were lost or the queue
    was cut. If an offset is after the queue's end, `behind` is negative, and the group may skip new messages.
    """
    from rmqctl.forensics.groups.lag import Lag

    opened = open_store(store, broker_conf, follow_links)
    lag = Lag(opened, group)
    head = {
        "store": str(store),
        "lastStoreTimestamp": lag.end_ms,
        "lastStoreTime": None if lag.end_ms is None else rfc3339(lag.end_ms),
    }
    rows = [_queue_row(lag, row) for row in lag.queues]
    totals = [_total_row(lag, total) for total in lag.totals]
    if output == "json":
        print_document("lag", head | {"unlisted": lag.unlisted, "groupTotals": totals, "groups": rows})
    elif output == "table":
        _print_tables(rows, totals)
    else:
        print_rows("lag", "groups", rows, output, KEYS, {}, head=head)
    return _finish(opened, lag, max_behind)


def _queue_row(lag: Lag, row: QueueLag) -> Row:
    return {
        "group": row.group,
        "topic": row.topic,
        "queueId": row.queue_id,
        "minOffset": row.min_offset,
        "maxOffset": row.max_offset,
        "offset": row.offset,
        "behind": row.behind,
        **_oldest(lag, row.oldest_ms),
        "outside": row.outside,
        "popped": row.popped,
    }


def _total_row(lag: Lag, total: GroupLag) -> Row:
    return {
        "group": total.group,
        "behind": total.behind,
        **_oldest(lag, total.oldest_ms),
        "retryDepth": total.retry_depth,
        "retriesDelayed": total.retries_delayed,
        "dlqDepth": total.dlq_depth,
        "popped": total.popped,
    }


def _oldest(lag: Lag, stored_ms: int | None) -> Row:
    return {
        "oldestStoreTimestamp": stored_ms,
        "oldestStoreTime": None if stored_ms is None else rfc3339(stored_ms),
        "oldestAgeMs": lag.age_ms(stored_ms),
    }


def _print_tables(rows: list[Row], totals: list[Row]) -> None:
    if not rows:
        return
    age: Cells = {"OLDEST": itemgetter("oldestStoreTime"), "AGE": _age}
    of_group: Cells = {"GROUP": itemgetter("group"), "BEHIND": itemgetter("behind"), **age}
    of_group |= {"RETRY": itemgetter("retryDepth"), "DELAYED": itemgetter("retriesDelayed")}
    of_group |= {"DLQ": itemgetter("dlqDepth"), "POPPED": itemgetter("popped")}
    print_rows("lag", "groupTotals", totals, "table", (), of_group, head={})
    print()
    ends = zip(("GROUP", "TOPIC", "QUEUE", "MIN", "MAX"), ENDS, strict=True)
    of_queue: Cells = {heading: itemgetter(key) for heading, key in ends}
    of_queue |= {"OFFSET": _offset, "BEHIND": itemgetter("behind"), **age}
    of_queue |= {"POPPED": lambda row: row["popped"] or None, "OUTSIDE": lambda row: OUTSIDE.get(row["outside"])}
    print_rows("lag", "groups", rows, "table", (), of_queue, head={})


def _age(row: Row) -> str | None:
    return None if row["oldestAgeMs"] is None else duration(row["oldestAgeMs"])


def _offset(row: Row) -> int | str:
    return NO_OFFSET if row["offset"] is None else int(row["offset"])


def _remark_outside(rows: list[QueueLag], meaning: str) -> None:
    """Report the first row of `rows`, and the number of further rows."""
    for first in rows[:1]:
        where = f"{first.group} in {first.topic}/{first.queue_id} is at {first.offset}"
        queue = f"the queue has [{first.min_offset}, {first.max_offset})"
        more = f"; {len(rows) - 1} more like it" if len(rows) > 1 else ""
        remark(f"{where}, {OUTSIDE[first.outside or '']} ({queue}): {meaning}{more}")


def _finish(store: ReadOnlyStore, lag: Lag, bound: Bound | None) -> int:
    """Report what was not read and what exceeds --max-behind. Return the exit code."""
    if not lag.queues:
        remark("no file in config/ names a consumer group")
    if lag.unlisted:
        from rmqctl.forensics.groups.queue_ends import unlisted_in_words

        remark(unlisted_in_words(lag.unlisted))
    for outside, meaning in MEANINGS.items():
        _remark_outside([row for row in lag.queues if row.outside == outside], meaning)
    for problem in lag.problems:
        remark(problem)
    for damage in store.foreign:
        remark(f"{damage.path}: {damage.detail}")
    over = lag.over(bound) if bound is not None else []
    if over:
        first = over[0]
        how_far = OUTSIDE.get(first.outside or "", f"{counted(first.behind or 0, 'message')} behind")
        where = f"the first is {first.group} in {first.topic}/{first.queue_id}, {how_far}"
        remark(f"{counted(len(over), 'queue')} over --max-behind; {where}")
    if lag.incomplete:
        return int(ExitCode.PARTIAL)
    return int(ExitCode.FINDINGS if over else ExitCode.CLEAN)
