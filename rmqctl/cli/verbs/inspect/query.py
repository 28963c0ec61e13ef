"""`rmqctl query`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import is_terminal, print_rows, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    OFFSET,
    OUTPUTS,
    bodies_of,
    body_options,
    id_options,
    note_failed_bodies,
    note_unread,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.times import TIME
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.message_table import message_columns
from rmqctl.errors import outcome

if TYPE_CHECKING:
    from rmqctl.forensics.search import Question

WAYS = (
    (("ids",), "--id ID[,ID...]"),
    (("msg_id",), "--msg-id ID"),
    (("unique_key",), "--unique-key K [--topic T]"),
    (("topic", "key"), "--topic T --key K"),
    (("topic", "queue_id", "offset"), "--topic T --queue Q --offset N"),
    (("topic", "queue_id", "at"), "--topic T --queue Q --at TIME"),
)


@dataclass(frozen=True)
class QueryOptions:
    """The options of `rmqctl query`. Times are in epoch ms."""

    topic: str | None
    key: str | None
    ids: tuple[str, ...] | None
    msg_id: str | None
    unique_key: str | None
    queue_id: int | None
    offset: int | None
    at: int | None


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # messages with a key
        rmqctl query store --topic OrderPaid --key order-4711
        # a message by any id of SendResult
        rmqctl query store --id 0A010200000000000000000000000018
        # a message by the id that a broker gave it
        rmqctl query store --msg-id C0A8070900002A9F00000000000037EE --body utf8
        # a message by the id that its producer gave the message
        rmqctl query store --unique-key 0A010200000000000000000000000018
        # a message by its queue offset
        rmqctl query store --topic OrderPaid --queue 2 --offset 17
        # the first message stored at this time or later
        rmqctl query store --topic OrderPaid --queue 2 --at 2026-11-21T09:15:00Z
        # read the whole log instead of the index
        rmqctl query store --topic OrderPaid --key order-4711 --scan
    """,
)
@store_argument
@click.option("--topic", help="The topic of the message.")
@id_options
@click.option("--queue", "queue_id", type=OFFSET, help="The queueId of the message.")
@click.option("--offset", type=OFFSET, help="The queue offset of the message.")
@click.option("--at", type=TIME, help="Find the first message of the queue that was stored at or after this time.")
@click.option("--scan", is_flag=True, help="Read the whole log instead of the index and the queues.")
@body_options
@output_option(*OUTPUTS)
@scan_options
@options_in(asked=QueryOptions)
def command(
    store: Path, scan: bool, body: str | None, charset: str | None, output: str, threads: int, asked: QueryOptions
) -> int:
    """Find messages by key, by id, by queue offset, or by time.

    `query` searches the index for a key. Because several keys can have the same hash, `query` checks each message that
    the index names. If the index is missing or incomplete, give --scan, which reads the whole log instead. If nothing
    is found, the exit code is 0. If the question needs the index and the store has no index, the exit code is 4.
    """
    from rmqctl.forensics.search import Search
    from rmqctl.format.message import ROW_KEYS

    question, bodies = _question(asked), bodies_of(body, charset)
    opened = open_store(store, log_only=scan or asked.msg_id is not None)
    search = Search(opened, question, bodies=bodies, threads=threads)
    if scan:
        warmed_up(search.warm_up)
    rows = _counted(search.by_scan() if scan else search.rows())
    quiet = not scan or (output == "table" and is_terminal(sys.stdout))
    with scan_progress(opened, "query", quiet=quiet):
        print_rows(
            "query", "items", rows, output, ROW_KEYS, message_columns(bodies.encoding), head={"store": str(store)}
        )
    for damage in search.findings:
        place = f"in {damage.path}" if damage.path else f"at {damage.physical_offset}"
        remark(f"damage: {damage.code} {place}: {damage.detail}")
    for remark_text in search.remarks:
        remark(remark_text)
    note_failed_bodies(bodies)
    note_unread(opened)
    return int(outcome(incomplete=search.incomplete or opened.partly_read, findings=bool(search.findings)))


def _counted(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    count = 0
    for row in rows:
        count += 1
        yield row
    if not count:
        remark("no message found")


def _question(asked: QueryOptions) -> Question:
    from rmqctl.forensics.search import Question

    given = {name for name, value in vars(asked).items() if value is not None}
    if not any(given - {"topic"} == set(names) - {"topic"} and given >= set(names) for names, _ in WAYS):
        raise click.UsageError("ask one of: " + " | ".join(usage for _, usage in WAYS))
    return Question(**vars(asked))
