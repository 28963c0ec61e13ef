"""`rmqctl extract`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_line_of_text, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.message_filter import FilterOptions, filter_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    LocalPath,
    charset_option,
    check_outside,
    note_unread,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import ExitCode, outcome
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.text import counted, quoted, size_text

if TYPE_CHECKING:
    from rmqctl.format.message import Damage
    from rmqctl.operations.extract.extract import Extraction, Selected


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # one order's messages, as a store for a colleague
        rmqctl extract store order-4711 --key order-4711
        # a topic's last hour, without anybody's data
        rmqctl extract store sample --topic OrderPaid --since -1h --redact body --redact properties
        # hide one field of JSON bodies, keep the queue offsets
        rmqctl extract store sample --topic OrderPaid --redact json:customer.email --keep-offsets
        # what a group still has to consume
        rmqctl extract store backlog --group billing --unconsumed
    """,
)
@store_argument
@click.argument("new", type=LocalPath())
@filter_options
@charset_option
@click.option(
    "--redact",
    metavar="WHAT",
    multiple=True,
    help="body, properties, or json:PATH (such as json:customer.email): replace these values by hashes of the same "
    "length. May be given several times.",
)
@click.option("--keep-offsets", is_flag=True, help="Keep the queue offsets, instead of counting each queue from 0.")
@output_option("table", "json")
@scan_options
@options_in(conditions=FilterOptions)
def command(
    store: Path,
    new: Path,
    redact: tuple[str, ...],
    keep_offsets: bool,
    output: str,
    threads: int,
    conditions: FilterOptions,
) -> int:
    """Copy the messages that meet all conditions into a small store.

    NEW must not exist. It becomes a store that brokers and all verbs read: log, queues and index of these messages, in
    files that are as small as they can be, and the topics and groups of STORE that they need. The messages keep their
    topics, queueIds, times, hosts, flags and ids; physical offsets are new. NEW/broker.conf has the file sizes, which a
    broker must know: append it to its own. Delayed and half messages, timers and POP's records stay what they are:
    where STORE's broker would still deliver them, a broker on NEW does.

    Queue offsets begin at 0, and the offsets of consumer groups are translated, so that a group goes on with the
    message that it had not consumed. With --keep-offsets, both stay. Brokers find nothing at the offsets of messages
    that were left out, and go on at the next message. Op messages, POP's and timers' records name others by their queue
    offsets: for these, use --keep-offsets.

    --redact replaces values by a hash with a random key, which is not kept: the same value gives the same hash in NEW,
    but nobody can look it up. body: the whole body, as JSON if it was JSON. json:PATH: the texts and numbers at PATH of
    a JSON body, and all below; names are joined by points, * is any name, and each element of a list counts. A body
    that is not JSON is then redacted whole. properties: KEYS, TAGS, UNIQ_KEY and all others that neither brokers nor
    clients act on; a key is found by its hash. Bodies are decompressed first. Topics, groups, queueIds, hosts and times
    are not redacted, and neither is what one part says of another: a key that is also in a body needs both.

    Damage in STORE is reported on stderr and left out; extract then exits with 1. If no message is selected, NEW is not
    created, and the exit code is 4; the same if a json:PATH is in no body.
    """
    from rmqctl.operations.extract.extract import Extraction
    from rmqctl.store.read.topic_names import unknown_topic

    wanted = conditions.filter()
    if os.path.lexists(new):
        raise click.BadParameter(f"{new} exists: choose another place", param_hint="NEW")
    opened = open_store(store)
    check_outside(new, opened, "NEW")
    damages: list[Damage] = []
    try:
        extraction = Extraction(
            opened,
            conditions.in_store(wanted, opened),
            redact,
            keep_offsets=keep_offsets,
            threads=threads,
            on_damage=damages.append,
        )
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--redact") from error
    warmed_up(partial(extraction.dump.warm_up, with_lines=False))
    with scan_progress(opened, "extract", 2 * opened.commit_log.size):
        selected = extraction.select()
        size = extraction.write(new) if selected.messages else 0
    for damage in damages:
        remark(f"damage: {damage.code} at {damage.physical_offset}, {damage.size} bytes: {damage.detail}; left out")
    note_unread(opened)
    for unknown in filter(None, (unknown_topic(opened, topic) for topic in sorted(wanted.topics))):
        remark(f"note: {unknown}")
    if output == "json":
        print_document("extract", {"store": str(store), "destination": str(new)} | _document(extraction, size))
    else:
        _print(selected, new, size)
    _remark(extraction, new)
    if not selected.messages:
        return int(ExitCode.PARTIAL)
    incomplete = extraction.dump.incomplete or opened.partly_read
    return int(outcome(incomplete=incomplete, findings=bool(damages or selected.impossible)))


def _print(selected: Selected, new: Path, size: int) -> None:
    if not selected.messages:
        print_line_of_text("no message is selected, so there is no new store")
        return
    what = f"{counted(selected.messages, 'message')} of {counted(len(selected.topics), 'topic')}"
    print_line_of_text(f"{what} in {quoted(new)}, {size_text(size)}")
    print_line_of_text(f"look into it: rmqctl info {quoted(new)}; rmqctl dump {quoted(new)} --body utf8")
    print_line_of_text(f"serve it: add {quoted(new / 'broker.conf')} to the broker.conf of a broker on a copy of it")


def _remark(extraction: Extraction, new: Path) -> None:
    selected = extraction.selected
    if selected.impossible:
        what = "have a topic or queue that no broker can have, and were left out"
        remark(f"{counted(selected.impossible, 'message')} {what}")
    if TIMER_TOPIC in selected.topics:
        remark(f"before a broker of 5.x starts on it: `rmqctl rebuild {quoted(new)} timers`, or old timers come again")
    for why, count in extraction.redaction.notes.items():
        remark(f"{counted(count, 'body', 'bodies')} redacted whole: {why}")


def _document(extraction: Extraction, size: int) -> dict[str, Any]:
    selected = extraction.selected
    return {
        "messages": selected.messages,
        "bytes": size,
        "topics": [{"topic": topic, "messages": count} for topic, count in sorted(selected.topics.items())],
        "leftOutMessages": selected.impossible,
        "redacted": [{"what": what, "values": count} for what, count in extraction.redaction.values.items()],
    }
