"""`rmqctl config show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click

from rmqctl.cli.output.render import print_document, print_table_of, remark
from rmqctl.cli.shared.options import note_unread, open_store, output_option, store_argument, verbose_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import outcome
from rmqctl.forensics.groups.group_progress import configuration
from rmqctl.forensics.groups.queue_ends import unlisted_in_words

Row = dict[str, Any]
NO_OFFSET = "none"


class Part(NamedTuple):
    """The JSON key, the title and the columns for one part of the configuration."""

    key: str
    title: str
    columns: tuple[str, ...]


ENDS = ("offset", "minOffset", "maxOffset", "behind")
PARTS = {
    "topics": Part("topics", "Topics", ("topic", "readQueueNums", "writeQueueNums", "perm", "order")),
    "groups": Part("groups", "Groups", ("group", "consumeEnable", "retryMaxTimes", "retryQueueNums")),
    "offsets": Part("offsets", "Offsets of groups", ("group", "topic", "queueId", *ENDS)),
    "delay": Part("delayOffsets", "Offsets of delay levels", ("level", *ENDS)),
}


@click.command(
    "show",
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # topics, groups, and how far each group is behind
        rmqctl config show store
        # groups that have messages to consume
        rmqctl config show store -o json | jq '.offsets[] | select(.behind > 0)'
        # only how far the delay levels are delivered
        rmqctl config show store delay
    """,
)
@store_argument
@click.argument("part", type=click.Choice(tuple(PARTS)), required=False, metavar="[topics|groups|offsets|delay]")
@verbose_option
@output_option("table", "json")
def command(store: Path, part: str | None, output: str) -> int:
    """Show topics, consumer groups, and the offsets of groups and delay levels.

    If a part of the configuration is empty, `show` prints no table for this part. `show` lists queues without files,
    unless these queues need more than 10,000 rows.

    `behind` counts the messages that a group has not consumed yet. Messages before the queue's minimum offset are
    deleted and do not count. If a group may read a queue but has no offset for the queue, all messages of the queue
    count, and `show` prints "none" (null in JSON). If a file is not valid JSON, or has a value of a wrong type, `show`
    reads the .bak of the file instead, as a broker does. If a file has a fault, stderr reports the fault, and the exit
    code is 1.
    """
    opened = open_store(store)
    document, problems, unlisted = configuration(opened)
    is_empty = not any(document.values())
    if part is not None:
        document = {key: rows for key, rows in document.items() if key == PARTS[part].key}
    shows_offsets = PARTS["offsets"].key in document
    if output == "json":
        print_document("config", {"store": str(store)} | document | ({"unlisted": unlisted} if shows_offsets else {}))
    else:
        for number, shown in enumerate(one for one in PARTS.values() if document.get(one.key)):
            print("\n" * bool(number) + shown.title)
            rows = document[shown.key]
            print_table_of(
                shown.columns, ({**row, "offset": NO_OFFSET} if row.get("offset", 0) is None else row for row in rows)
            )
    if is_empty:
        remark("this store has no configuration: config/ is missing or empty")
    if unlisted and shows_offsets:
        remark(unlisted_in_words(unlisted))
    for problem in problems:
        remark(problem)
    note_unread(opened)
    return int(outcome(incomplete=opened.partly_read, findings=bool(problems)))
