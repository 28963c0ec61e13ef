"""`rmqctl send`."""

from __future__ import annotations

import ssl
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.shared.message_filter import FilterOptions, filter_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    POSITIVE,
    LocalPath,
    charset_option,
    check_outside,
    layout_options,
    note_unread,
    open_store,
    output_option,
    scan_options,
    scan_progress,
)
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.cli.verbs.change.append import blocks_of_lines
from rmqctl.cli.views.change.send_run import STDIN, SendOptions, SendRun
from rmqctl.errors import ExitCode, NotConfirmed, Unreadable
from rmqctl.remoting.address import Address, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(parse_address(one.strip()) for one in text.split(";") if one.strip())


@click.command(
    cls=Verb,
    exit_codes=(*STORE_VERB, ExitCode.FINDINGS, ExitCode.IN_USE, ExitCode.NOT_CONFIRMED),
    examples="""
        # what would be sent, and whether the cluster has the topics
        rmqctl send store --to 10.1.2.3:9876 --topic OrderPaid --since -2h --receipts sent.jsonl --dry-run
        # send it; the same command again goes on after a kill
        rmqctl send store --to 10.1.2.3:9876 --topic OrderPaid --since -2h --receipts sent.jsonl --yes
        # the dead letters of a group, to the topics that they come from
        rmqctl send store --to 10.1.2.3:9876 --dead-letters billing --receipts billing.jsonl --yes
        # what the slave has not, into the live cluster
        rmqctl diff master slave --messages | rmqctl send - --to 10.1.2.3:9876 --receipts lost.jsonl --yes
    """,
)
@click.argument("store", metavar="STORE|-", type=LocalPath())
@layout_options
@click.option(
    "--to",
    "name_servers",
    type=Parsed("HOST:PORT[;HOST:PORT...]", _addresses),
    help="The cluster's name servers. The next one is asked if one does not answer.",
)
@click.option(
    "--broker",
    type=Parsed("HOST:PORT", parse_address),
    help="In place of --to: one broker, which takes all messages.",
)
@click.option(
    "--receipts",
    type=LocalPath(),
    required=True,
    help="The file of receipts: a line of JSON for each message that a broker has stored. What has one is not sent "
    "again.",
)
@click.option("--dry-run", is_flag=True, help="Only count what would be sent, and ask the cluster where it would go.")
@click.option("--yes", is_flag=True, help="Send.")
@click.option(
    "--dead-letters",
    metavar="[GROUP]",
    is_flag=False,
    flag_value="",
    help="Send the dead letters of this group, or of all groups, to the topics that they come from, and nothing else.",
)
@click.option(
    "--retries",
    is_flag=True,
    help="Send the retries of all groups to the topics that they come from, and nothing else.",
)
@click.option("--topic-to", help="Send everything to this topic.")
@click.option("--rate", type=POSITIVE, help="Send at most this many messages a second.")
@click.option("--batch", type=POSITIVE, default=200, help="Send at most this many messages in one request.")
@click.option("--new-ids", is_flag=True, help="Give each message a new UNIQ_KEY.")
@click.option(
    "--keep-queue",
    is_flag=True,
    help="Send each message to the queue with its queueId; if a topic lacks one of them, send nothing.",
)
@click.option(
    "--access-key-file",
    type=LocalPath(),
    help="Sign all requests (ACL 1.0) with the key in this file, which has the lines `accessKey: NAME` and `secretKey: "
    "SECRET`, and may have `securityToken: TOKEN`.",
)
@click.option(
    "--tls",
    metavar="[CA_FILE]",
    is_flag=False,
    flag_value="",
    help="Encrypt the connections. Certificates are checked against CA_FILE (PEM); without it any will do, as in "
    "RocketMQ's own clients.",
)
@filter_options
@charset_option
@output_option("table", "json")
@scan_options
@options_in(asked=SendOptions, conditions=FilterOptions)
def command(
    store: Path,
    access_key_file: Path | None,
    tls: str | None,
    threads: int,
    yes: bool,
    asked: SendOptions,
    conditions: FilterOptions,
) -> int:
    """Send messages of a store, or lines of `dump`, to a live cluster.

    STORE is read as `dump` reads it, with the same filters. `-` reads the lines of `dump --body base64 -o jsonl` or
    `diff --messages` from stdin.

    Topic, keys, tags, the properties of producers, UNIQ_KEY, body and flag stay; a compressed body is sent as it is
    stored. What the old broker wrote to deliver the message goes: DELAY and TIMER_*, REAL_TOPIC, TRAN_MSG, RETRY_TOPIC,
    ORIGIN_MESSAGE_ID, POP_CK and the like. Born time and born host are those of the new send. Messages that no consumer
    of a topic got are not sent: delayed and half messages, rolled-back transactions, POP's and timers' own records,
    system topics, client traces, LMQ topics, placeholders of `recover`; nor retries and dead letters, unless
    --dead-letters or --retries asks for them.

    The messages of a queue stay in order: all go to one queue, the queues of a topic being taken in turn.

    Each batch is noted in FILE.intent before it leaves, and in FILE (--receipts) after the broker has stored it, both
    on the disk. The same command with the same FILE goes on where any end, even SIGKILL, left off. Only the messages of
    the batch that was on its way can then be in the cluster twice: stderr names them, and so do the document (inDoubt)
    and their receipts. A message is known by the broker that stored it (storeHost) and its physical offset.

    Nothing is sent to a topic that the cluster lacks, and none is created. A message that a broker does not take, or
    not as safely as it should (FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE), is counted and shown, and the exit code is 4.
    A broker that is full, dead or refuses the access key ends the run; what was not sent is sent by the next one.
    """
    from rmqctl.forensics.dump import Dump
    from rmqctl.remoting.access_key import parse_access_key

    _check_usage(store, asked, conditions, yes=yes)
    text = None if access_key_file is None else access_key_file.read_text(encoding="utf-8", errors="replace")
    key = None if text is None else parse_access_key(text)
    run = SendRun(store, asked, key, None if tls is None else _tls_context(tls))
    with Interruption() as interruption:
        if str(store) == STDIN:
            return run.send(lambda: run.source.of_lines(_lines(interruption)), interruption)
        wanted = conditions.filter()
        opened = open_store(store, log_only=not conditions.unconsumed)
        check_outside(asked.receipts, opened, "--receipts")
        dump = Dump(opened, conditions.in_store(wanted, opened), on_damage=run.damage, threads=threads)
        warmed_up(partial(dump.warm_up, with_lines=False))
        with scan_progress(opened, "send"):
            code = run.send(lambda: run.source.of_store(dump), interruption)
        if not run.has_found:
            _check_names(opened, wanted.topics, asked.dead_letters)
        note_unread(opened)
        return ExitCode.PARTIAL if code is ExitCode.CLEAN and (dump.incomplete or opened.partly_read) else code


def _check_usage(store: Path, asked: SendOptions, conditions: FilterOptions, *, yes: bool) -> None:
    from rmqctl.operations.send.outgoing import is_target

    if bool(asked.name_servers) == (asked.broker is not None):
        raise click.UsageError("where to? give --to (name servers) or --broker, one of them")
    if not (asked.dry_run or yes):
        raise NotConfirmed("nothing is sent", hint="--dry-run says what would be, --yes sends it")
    if asked.topic_to is not None and not is_target(asked.topic_to):
        raise click.BadParameter("not a topic that producers send to", param_hint="--topic-to")
    if str(store) == STDIN and conditions.are_given:
        raise click.UsageError("lines from stdin are not filtered: give the filters to the `rmqctl dump` before")


def _check_names(store: ReadOnlyStore, topics: Iterable[str], group: str | None) -> None:
    from rmqctl.store.config.topics import DLQ_PREFIX
    from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups
    from rmqctl.store.read.topic_names import unknown_topic

    store.list_all()
    for unknown in filter(None, (unknown_topic(store, topic) for topic in sorted(topics))):
        remark(f"note: {unknown}")
    if group and unknown_topic(store, DLQ_PREFIX + group):
        ConsumerGroups(store).check_group(group)


def _lines(interruption: Interruption) -> Iterator[bytes]:
    for block in blocks_of_lines(sys.stdin.buffer, interruption):
        yield from bytes(block).removesuffix(b"\n").split(b"\n")


def _tls_context(ca: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except ssl.SSLError as error:
        raise Unreadable(f"no certificate in PEM: {error}", path=ca) from error
    context.check_hostname = False  # clusters are known by addresses
    context.verify_mode = ssl.CERT_REQUIRED if ca else ssl.CERT_NONE
    return context
