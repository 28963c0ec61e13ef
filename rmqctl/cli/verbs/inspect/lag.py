"""`rmqctl lag`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.options import OUTPUTS, open_store, output_option, store_argument, verbose_option
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.times import UNIT_MS
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.lag_view import lag_report, print_lag

if TYPE_CHECKING:
    from rmqctl.forensics.groups.lag import Bound


def _bound(text: str) -> Bound:
    """Parse a limit: a number of messages such as 1000, or an age such as 10m."""
    from rmqctl.forensics.groups.lag import Bound

    digits = text.rstrip("mshdw")
    unit = text.removeprefix(digits)
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18 and unit in ("", *UNIT_MS)):
        raise ValueError(f"{text!r} is neither a number of messages nor an age such as 90s, 10m or 2h")
    return Bound(age_ms=int(digits) * UNIT_MS[unit]) if unit else Bound(messages=int(digits))


max_behind_option = click.option(
    "--max-behind",
    type=Parsed("N|AGE", _bound),
    help="With N, exit with 1 if a group is more than N messages behind in a queue. With AGE (90s, 10m, 2h), exit "
    "with 1 if a group's oldest unconsumed message is more than AGE older than the log's last message, or cannot "
    "be read. Use N, too: the age only grows when messages arrive. With N or AGE, exit with 1 if an offset is "
    "outside its queue.",
)


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
@max_behind_option
@verbose_option
@output_option(*OUTPUTS)
def command(store: Path, group: str | None, max_behind: Bound | None, output: str) -> int:
    """Show how far each consumer group is behind, by topic and queue.

    `behind` counts the messages that the group has not consumed. If the group has no offset for a queue, all messages
    of the queue count, and the table shows "none" (null in JSON). `oldest` is the store time of the oldest message that
    the group has not consumed. The age of the oldest message is measured until the store time of the log's last
    message, not until now; if the broker's clock went back meanwhile, stderr says so, and the age is by the clock of
    the log's end. If the oldest message cannot be read, its time and its age are empty. In the row of a group, `behind`
    is the sum for all queues of the group, including %RETRY% topics; if a queue could not be read, it is shown as `≥ N`
    (`behindAtLeast` in JSON). `retry` counts the messages of `behind` that are in %RETRY% topics. `delayed` counts the
    retries that still wait for their delay. `dlq` counts the messages in the group's dead-letter queue, and is empty if
    this could not be read. `popped` counts the messages that the group popped and has not acknowledged, by the
    revive topics and, with the extra `rocksdb`, by kvStore/ (`popConsumerKVServiceEnable`). CSV and JSON Lines have a
    row for each queue.

    With `enableLmq=true` in the file of --broker-conf, the offsets are those of config/lmqConsumerOffset.json alone,
    which a broker of 4.9.3 or later then reads.

    `lag` lists queues of topics.json that have no files and no offset, unless these queues need more than 10,000 rows.
    stderr and the JSON key `unlisted` report the number of omitted rows.

    `outside` marks an offset that is not in its queue. If an offset is before the first message of the queue, messages
    were deleted before the group consumed them. If an offset is after the queue's end, messages were lost or the queue
    was cut. If an offset is after the queue's end, `behind` is negative, and the group may skip new messages.
    """
    from rmqctl.forensics.groups.lag import Lag
    from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups

    opened = open_store(store)
    groups = ConsumerGroups(opened)
    if group is not None:
        groups.check_group(group)
    report = lag_report(opened, Lag(opened, group, groups=groups), str(store), max_behind)
    print_lag(report, output)
    for line in report.remarks:
        remark(line)
    return int(report.exit_code)
