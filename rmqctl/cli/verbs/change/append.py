"""`rmqctl append`."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from rmqctl.cli.output.render import progress, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.shared.option_class import kept, options_in
from rmqctl.cli.shared.options import (
    POSITIVE,
    LocalPath,
    check_numbers,
    conf_of,
    output_option,
    profile_option,
    progress_option,
)
from rmqctl.cli.shared.run_as import act_as_owner, as_root_option
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.errors import BadRequest, ExitCode, NotAStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase

    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.format.profile import Profile
    from rmqctl.operations.append.line_appender import LineAppender
    from rmqctl.store.engine.message_store import MessageStore

SIZE = click.IntRange(1024, 2**31 - 1)
COUNT = click.IntRange(1, 2**31 - 1)
QUEUE_ID = click.IntRange(0, 65535)  # below QUEUE_NUMS_MAX of rmqctl.store.write.topic_config
TRANSACTIONS = {"none": 0, "prepared": 4, "commit": 8, "rollback": 12}
BLOCK_SIZE = 1024 * 1024  # bytes of lines


class Source(click.File):
    """The type of an option that names a file to read, or `-` for stdin."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the source; a closed stdin is no empty one."""
        if value == "-" and sys.__stdin__ is None:
            self.fail("stdin is closed: name a file, or use a pipe", param, ctx)
        return super().convert(value, param, ctx)


def blocks_of_lines(source: BinaryIO, interruption: Interruption) -> Iterator[memoryview]:
    """Yield blocks of whole lines as soon as the lines arrive.

    The next block overwrites a block, because all blocks are in one buffer. The buffer grows only for a long line.
    After `interruption` has noted a signal, no more blocks are yielded.
    """
    reader = cast("BufferedIOBase", source)
    buffer, rest = bytearray(BLOCK_SIZE), 0
    while not interruption.noted:
        read = 0
        with interruption.waiting():
            read = reader.readinto1(memoryview(buffer)[rest:])
        if not read:
            break
        end = rest + read
        cut = buffer.rfind(b"\n", rest, end) + 1
        if cut:
            yield memoryview(buffer)[:cut]
        rest = end - cut
        buffer[:rest] = buffer[cut:end]
        if rest == len(buffer):
            buffer = buffer + bytes(rest)  # not in place: the last block may still be in use
    if rest and not interruption.noted:
        yield memoryview(buffer)[:rest]


def size_of_source(source: BinaryIO | None) -> int:
    """Return the size of a file in bytes, or 0 for a source without a size."""
    if source is None or source is sys.stdin.buffer or not source.seekable():
        return 0
    return os.fstat(source.fileno()).st_size


@dataclass(frozen=True)
class MessageOptions:
    """The options of `rmqctl append` for a single message."""

    topic: str | None
    body: str | None
    body_file: BinaryIO | None
    tags: str | None
    keys: str | None
    pairs: tuple[str, ...]
    queue_id: int | None
    delay_level: int | None
    transaction: str | None

    @property
    def is_given(self) -> bool:
        """Return whether the command line has options for a single message."""
        return any(value not in (None, ()) for value in vars(self).values())


def message_of_options(asked: MessageOptions) -> MessageExtBrokerInner:
    """Return the message that the options describe."""
    from rmqctl.format.encode import MessageExtBrokerInner
    from rmqctl.operations.append.message_from_json import BORN_HOST, STORE_HOST, checked_properties
    from rmqctl.store.config.topics import TOPIC_LENGTH_MAX, is_topic
    from rmqctl.store.engine.message_store import now_ms

    topic = asked.topic or ""
    if not is_topic(topic):
        raise click.BadParameter(
            f"a topic name has 1 to {TOPIC_LENGTH_MAX} letters, digits and %|-_ only", param_hint="--topic"
        )
    given = _given_properties(asked)
    try:
        found = checked_properties(given, is_copy=False)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    body = asked.body_file.read() if asked.body_file is not None else os.fsencode(asked.body or "")
    kind = TRANSACTIONS[asked.transaction or "none"]
    return MessageExtBrokerInner(topic, body, found, BORN_HOST, STORE_HOST, now_ms(), asked.queue_id or 0, 0, kind)


def _given_properties(asked: MessageOptions) -> dict[str, str]:
    """Return the properties that --property, --tags, --keys and --delay-level set."""
    if any("=" not in pair for pair in asked.pairs):
        raise click.BadParameter("write NAME=VALUE", param_hint="--property")
    said = [pair.partition("=")[::2] for pair in asked.pairs]
    options = {"TAGS": asked.tags, "KEYS": asked.keys, "DELAY": asked.delay_level}
    said += [(name, str(value)) for name, value in options.items() if value is not None]
    given: dict[str, str] = {}
    for name, value in said:
        if name in given:
            raise click.UsageError(
                f"the property {name} is given twice (--tags, --keys and --delay-level set TAGS, KEYS and DELAY)"
            )
        given[name] = value
    return given


@dataclass(frozen=True)
class AppendOptions:
    """The options of `rmqctl append` for writing, and the sizes of new files.

    The sizes of files are in bytes. The sizes of an index file are its numbers of slots and entries.
    """

    broker_conf: Path | None
    batch: int
    sync: bool
    stop_on_error: bool
    create: bool
    profile: Profile | None
    property_crc: bool
    commitlog_file_size: int | None
    consumequeue_file_size: int | None
    index_slots: int | None
    index_entries: int | None
    with_system_topics: bool
    stats: bool

    @property
    def sizes(self) -> dict[str, int]:
        """Return the sizes that the user gave, by the names of Geometry's fields."""
        names = ("commitlog_file_size", "consumequeue_file_size", "index_slots", "index_entries")
        return {name: size for name in names if (size := getattr(self, name)) is not None}


@click.command(
    cls=Verb,
    exit_codes=(*STORE_VERB, ExitCode.FINDINGS, ExitCode.IN_USE),
    examples="""
        # one message
        rmqctl append store --topic OrderPaid --body '{"order":4711}' --tags paid --keys 'order-4711 user-7'
        # the messages of another store
        rmqctl dump A --body base64 -o jsonl | rmqctl append B --from -
        # a new store in the format of 5.3
        rmqctl append new --create --profile 5.3 --from messages.jsonl
        # one message with a delay of ten seconds
        rmqctl append store --topic OrderPaid --body-file order.json --delay-level 3
    """,
)
@click.argument("store", type=LocalPath())
@click.option(
    "--broker-conf",
    envvar="RMQCTL_BROKER_CONF",
    type=click.Path(path_type=Path),
    help="The broker's broker.conf. `append` writes as a broker with this broker.conf does.",
)
@click.option("--topic", help="The topic of the message.")
@click.option("--body", help="The body of the message, as text.")
@click.option("--body-file", type=Source(), help="A file with the body of the message. The name - means stdin.")
@click.option("--tags", help="The TAGS of the message.")
@click.option("--keys", help="The KEYS of the message, with spaces between the keys.")
@click.option(
    "--property",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Add this property to the message. The option may be given several times.",
)
@click.option(
    "--queue",
    "queue_id",
    type=QUEUE_ID,
    help="The queueId of the message. If the topic has too few queues, `append` adds queues.  [default: 0]",
)
@click.option(
    "--delay-level",
    type=POSITIVE,
    help="Deliver the message after the delay of this level: 1s 5s 10s 30s 1m ... 2h. A level above the last level "
    "counts as the last level.",
)
@click.option("--transaction", type=click.Choice(list(TRANSACTIONS)), help="The transaction kind of the message.")
@click.option(
    "--from",
    "source",
    type=Source(),
    help="A file with messages as JSON Lines, as `dump` prints them. The name - means stdin.",
)
@click.option(
    "--with-system-topics",
    is_flag=True,
    help="With --from, also append to the topics that make a broker deliver messages again.",
)
@click.option(
    "--batch",
    type=POSITIVE,
    default=1,
    help="Append up to this many successive messages of one queue as one batch.",
)
@click.option("--sync", is_flag=True, help="Flush each message (or batch) to the disk before the next one is stored.")
@click.option("--stop-on-error", is_flag=True, help="Stop at the first line that `append` cannot store.")
@click.option("--create", is_flag=True, help="Create a new store. STORE must not exist, or must be an empty folder.")
@profile_option("Write in the same way as brokers of this version. With --create, the default is the newest version.")
@click.option(
    "--property-crc",
    is_flag=True,
    help="Add the property __CRC32# to each record. Brokers of 5.2 and later know __CRC32#.",
)
@click.option(
    "--commitlog-file-size",
    type=SIZE,
    help="With --create, the size of each log file, in bytes.  [default: as --broker-conf says, otherwise 1 GiB]",
)
@click.option(
    "--consumequeue-file-size",
    type=click.IntRange(20, 2**31 - 1),
    help="With --create, the size of each queue file, in bytes.  [default: as --broker-conf says, otherwise 6000000]",
)
@click.option(
    "--index-slots",
    type=COUNT,
    help="With --create, the number of slots in an index file.  [default: as --broker-conf says, otherwise 5000000]",
)
@click.option(
    "--index-entries",
    type=click.IntRange(2, 2**31 - 1),
    help="With --create, the number of entries in an index file.  [default: as --broker-conf says, otherwise 20000000]",
)
@click.option("--stats", is_flag=True, help="At the end, report the speed, the sizes and the times of all puts.")
@output_option("table", "json", "jsonl")
@as_root_option
@progress_option
@options_in(message=MessageOptions, asked=AppendOptions)
def command(store: Path, source: BinaryIO | None, output: str, message: MessageOptions, asked: AppendOptions) -> int:
    """Append messages to the log, queues and index of a store, as a broker does.

    The store must have been shut down cleanly. No broker may have the store open. The last three files of the log must
    be undamaged. Each message gets a new offset and a new store time, even if the message comes from `dump`.

    `append` adds missing topics and queues to config/topics.json, because a broker only serves the topics in this file.

    Each line of --from is a JSON object with the keys that `dump` prints. A line must have the key `topic`. A line may
    also have body, bodyEncoding (utf8, hex, base64), queueId (at most 65535), properties (TAGS, KEYS, and your own),
    flag, sysFlag, bornTimestamp, bornHost, storeHost, reconsumeTimes. If a line has bodyCrc, the body must match this
    checksum. `dump --body base64` prints the exact body of every message.

    --from leaves out the topics that make a broker deliver: a copy of SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer would
    deliver each delayed message again, RMQ_SYS_TRANS_HALF_TOPIC would check transactions again (and without
    RMQ_SYS_TRANS_OP_HALF_TOPIC, those that ended, too), and rmq_sys_REVIVE_LOG_* would send popped messages again.
    stderr says how many were left out; --with-system-topics takes them.

    A line with physicalOffset is the copy of a stored message, and keeps its properties as they are. For a broker,
    DELAY, TIMER_*, TRAN_MSG, REAL_TOPIC and REAL_QID say how the message came into its topic; outside the topics above
    they delay or redirect nothing. reconsumeTimes counts on: a group that fails on the copy gets it back after the
    delay of level 3 + reconsumeTimes, and as a dead letter after its last retry (16 by default). RETRY_TOPIC names the
    topic that consumers see for a message of %RETRY%GROUP, and keeps its value in later retries. To begin anew, leave
    out physicalOffset, reconsumeTimes and these properties. A line without physicalOffset is a new message: DELAY
    delays it, and it gets a UNIQ_KEY if it has none.

    If `append` cannot store a line, stderr reports the number of the line and the reason. Without --stop-on-error,
    `append` then stores the other lines. `append` exits with 4 if a line was not stored. For successive lines with the
    same fault, `append` reports the first line and the number of the last line.

    Ctrl-C, a full disk, --stop-on-error or a closed stdout stops `append` cleanly. The last line on stderr reports how
    many messages are stored, and at which line to resume. If `append` with --create stops before it has stored a
    message, `append` removes the new store.

    `rmqctl undo` cannot undo an append. To remove the appended messages, run `rmqctl truncate STORE --to OFFSET`, where
    OFFSET is the end of the log before the append.

    With -o jsonl, `append` prints the offsets of each stored message. With -o table or -o json, `append` prints the new
    offsets of each queue.
    """
    _check_usage(source, message, asked)
    return _append(store, source, output, message, asked)


def _append(store: Path, source: BinaryIO | None, output: str, message: MessageOptions, asked: AppendOptions) -> int:
    from rmqctl.cli.views.change.append_report import AppendReport
    from rmqctl.operations.append.appender import PUT_AT_ONCE, Appender
    from rmqctl.operations.append.line_appender import LineAppender
    from rmqctl.operations.append.line_encoder import encoder_of
    from rmqctl.store.engine.message_store import now_ms
    from rmqctl.store.engine.store_stats import StoreStats

    named = None if source is None else "" if source is sys.stdin.buffer else source.name
    report = AppendReport(store, named, output)
    given = message_of_options(message) if source is None else None
    hears_of_each = (
        source is None or asked.sync or output == "jsonl" or asked.stats or asked.stop_on_error or asked.batch > 1
    )
    warmed_up(partial(_warm_up, with_lines=not hears_of_each))
    with Interruption() as interruption:  # begins before the store is opened, because the open creates `abort`
        opened = _open(store, asked)
        opened.stats = StoreStats() if asked.stats else None
        sync = asked.sync or opened.conf.writing.sync_flush
        at_once = 1 if asked.stop_on_error else PUT_AT_ONCE
        appender = Appender(opened, report.stored, report.refused, batch=asked.batch, at_once=at_once, sync=sync)
        encoder = None if hears_of_each or sync else encoder_of(opened)
        lines = LineAppender(
            appender,
            now_ms,
            encoder,
            lambda: interruption.noted or report.is_over(stop_on_error=asked.stop_on_error),
            asked.with_system_topics,
        )
        is_whole = False
        try:
            if given is not None and not interruption.noted:
                appender.put(1, given, is_copy=False)
                appender.finish()
            if source is not None:
                _put_lines(source, lines, interruption)
            is_whole = not lines.takes_no_more
        except OSError as error:
            if error is not opened.failure:  # the report at the end shows `opened.failure`
                raise
        finally:
            try:
                report.close(opened, keeps_empty=is_whole and not report.lines_refused and appender.ended is None)
            finally:
                report.print_all(opened, appender, lines.left_out, None if is_whole else lines.next_line)
    return int(ExitCode.INTERRUPTED if interruption.noted else report.exit_code(appender))


def _put_lines(source: BinaryIO, lines: LineAppender, interruption: Interruption) -> None:
    size = size_of_source(source)
    with progress(kept("progress_mode") if size else "none", size, "append") as advance:
        for number, block in enumerate(blocks_of_lines(source, interruption)):
            lines.put(block if number or bytes(block[: len(BOM_UTF8)]) != BOM_UTF8 else block[len(BOM_UTF8) :])
            advance(len(block))
            if lines.takes_no_more:
                return


def _check_usage(source: BinaryIO | None, message: MessageOptions, asked: AppendOptions) -> None:
    from rmqctl.format.cq_unit import CQ_UNIT

    if (source is None) == (not message.is_given):
        raise click.UsageError("nothing to append: give --topic and --body, or --from FILE")
    if source is None and message.topic is None:
        raise click.UsageError("a message needs a topic: give --topic")
    if source is None and (message.body is None) == (message.body_file is None):
        raise click.UsageError("a message needs a body: give --body or --body-file")
    if asked.sizes and not asked.create:
        option = next(iter(asked.sizes)).replace("_", "-")
        raise click.UsageError(f"--{option} works only with --create: an existing store keeps its file sizes")
    if (asked.consumequeue_file_size or 0) % CQ_UNIT.size:
        raise click.BadParameter(
            f"a unit has {CQ_UNIT.size} bytes: give a multiple", param_hint="--consumequeue-file-size"
        )
    if asked.property_crc and asked.profile and asked.profile.name.startswith("4."):
        raise click.UsageError(
            "--property-crc works only with --profile 5.3 and later: older brokers do not know __CRC32#"
        )


def _warm_up(*, with_lines: bool) -> None:
    from rmqctl.operations.append.line_encoder import LineEncoder
    from rmqctl.store.engine.message_store import MessageStore

    MessageStore.warm_up()
    if with_lines:
        LineEncoder.warm_up()


def _open(store: Path, asked: AppendOptions) -> MessageStore:
    from rmqctl.format.profile import NEWEST_PROFILE
    from rmqctl.store.config.file_sizes import geometry_of_conf
    from rmqctl.store.config.store_path import named_commitlogs
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.write.commit_log_writer import put_settings

    conf = conf_of(store, asked.broker_conf)
    check_numbers(conf)
    act_as_owner(store, named_commitlogs(store, conf))
    if not asked.create:
        try:
            opened = MessageStore(store, conf, profile=asked.profile, property_crc=asked.property_crc)
        except NotAStore as error:
            error.hint = error.hint or "--create makes a new store"
            raise
        if asked.profile is None and not opened.shows_version:
            remark(
                f"cannot tell which broker version wrote this store: assuming {opened.profile.label} "
                "(override with --profile or --broker-version)"
            )
        return opened
    usual = geometry_of_conf(conf)
    try:
        settings = put_settings(conf, asked.profile or NEWEST_PROFILE, property_crc=asked.property_crc)
        return MessageStore.create(store, settings, usual._replace(**asked.sizes), conf)
    except FileExistsError as error:
        raise BadRequest(
            "already exists and is not empty",
            path=error.filename,
            hint="to append to this store, leave out --create",
        ) from error
    except NotADirectoryError as error:
        raise NotAStore("this is a file, but a store is a folder", path=str(store)) from error
