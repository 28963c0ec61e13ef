"""`rmqctl dump`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import is_terminal, print_lines, print_rows, remark, to_json
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.message_filter import FilterOptions, filter_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    COUNT,
    OFFSET,
    OUTPUTS,
    POSITIVE,
    bodies_of,
    body_options,
    note_failed_bodies,
    note_unread,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.message_table import message_columns
from rmqctl.errors import outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.dump import Dump
    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.message import Damage
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.read_only_store import ReadOnlyStore

DEFAULT_CONTEXT = 2


@dataclass(frozen=True)
class DumpOptions:
    """The options of `rmqctl dump` besides its filter and bodies."""

    limit: int | None
    tail: int | None
    around: int | None
    context: int
    follow: bool
    compaction: bool

    def follows_from_start(self, wanted: Filter) -> bool:
        """Return whether --follow starts with records from --from-offset or --since."""
        return self.follow and self.tail is None and (wanted.from_offset, wanted.since) != (None, None)


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # the last 20 records
        rmqctl dump store --tail 20
        # a message with its body
        rmqctl dump store --topic OrderPaid --key order-4711 --body utf8
        # the messages of an hour, each as a line of JSON
        rmqctl dump store --since -2h --until -1h -o jsonl
        # the messages that a consumer group has not consumed
        rmqctl dump store --group billing --unconsumed
        # the records and the damage around an offset
        rmqctl dump store --around 198175
        # all records, with exact bodies
        rmqctl dump store --body base64 -o jsonl > messages.jsonl
        # what consumers get of compacted topics
        rmqctl dump store --compaction
        # new messages as the broker writes them
        rmqctl dump store --follow --topic OrderPaid
    """,
)
@store_argument
@filter_options
@body_options
@click.option("--limit", type=COUNT, help="Print at most this many records.")
@click.option("--tail", type=POSITIVE, help="Print at most this many of the selected records, from the end of the log.")
@click.option(
    "--around",
    type=OFFSET,
    metavar="OFFSET",
    help="Print the record at this physical offset, and the records around it.",
)
@click.option(
    "--context",
    type=COUNT,
    default=DEFAULT_CONTEXT,
    help="With --around, print this many records on each side.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Print new records as a broker appends them, until Ctrl-C or --limit. With --tail, --since or "
    "--from-offset, `dump` prints existing records first. A new record is printed when it is complete.",
)
@click.option(
    "--compaction",
    is_flag=True,
    help="Print the records of compaction/ in place of the log's: what consumers get of topics with "
    "cleanup.policy=COMPACTION. Their physical offsets are places in compactionLog.",
)
@click.option(
    "--damaged", is_flag=True, help="Also print a row for each damaged place, with the keys `damage` and `detail`."
)
@output_option(*OUTPUTS)
@scan_options
@options_in(asked=DumpOptions, conditions=FilterOptions)
def command(
    store: Path,
    body: str | None,
    damaged: bool,
    output: str,
    threads: int,
    asked: DumpOptions,
    conditions: FilterOptions,
) -> int:
    """Print the log's records that meet all conditions, in the order of the log.

    Damage does not stop `dump`. `dump` reports the damage on stderr, continues at the next whole record, and exits with
    1.
    """
    from rmqctl.forensics.dump import Dump
    from rmqctl.format.message import ROW_KEYS

    wanted = conditions.filter()
    _check_usage(asked, conditions, wanted)
    bodies = bodies_of(body, conditions.charset, default="none" if conditions.body_match is not None else "utf8")
    opened = open_store(store, log_only=not conditions.unconsumed)
    wanted = conditions.in_store(wanted, opened)
    dump = Dump(
        opened,
        wanted,
        bodies=bodies,
        damaged=damaged or output == "table",
        on_damage=_remark_damage,
        on_cut=_remark_cut,
        threads=threads,
    )
    whole_log = asked.around is None and not (asked.tail or asked.follow or asked.compaction)
    as_lines = whole_log and output == "jsonl"
    if whole_log or asked.follows_from_start(wanted):
        warmed_up(partial(dump.warm_up, with_lines=as_lines))
    quiet = asked.follow or (output == "table" and is_terminal(sys.stdout))
    try:
        with scan_progress(opened, "dump", quiet=quiet):
            if as_lines:
                print_lines(dump.lines(to_json), asked.limit)
            else:
                rows = _counted(islice(_rows(dump, asked, wanted), asked.limit), dump)
                print_rows(
                    "dump",
                    "items",
                    rows,
                    output,
                    ROW_KEYS,
                    message_columns(bodies.encoding, asked.around),
                    head={"store": str(store)},
                    live=asked.follow,
                )
    except KeyboardInterrupt:
        _finish(opened, dump, asked, wanted, cut_short_by="Ctrl-C")
        raise
    return _finish(opened, dump, asked, wanted, cut_short_by="--limit")


def _rows(dump: Dump, asked: DumpOptions, wanted: Filter) -> Iterable[dict[str, Any]]:
    """Return the rows that the options select."""
    if asked.compaction:
        return dump.compaction_rows()
    if asked.around is not None:
        return dump.around(asked.around, asked.context)
    if asked.follow:
        return dump.follow(tail=asked.tail, from_start=asked.follows_from_start(wanted))
    return dump.rows() if asked.tail is None else dump.tail(asked.tail)


def _counted(rows: Iterable[dict[str, Any]], dump: Dump) -> Iterator[dict[str, Any]]:
    for row in rows:
        dump.matched += "damage" not in row
        yield row


def _check_usage(asked: DumpOptions, conditions: FilterOptions, wanted: Filter) -> None:
    if asked.around is not None and (conditions.are_given or asked.tail is not None or asked.follow):
        raise click.UsageError("--around prints every record near an offset: do not combine it with other conditions")
    of_log = (asked.around, asked.tail, wanted.from_offset, wanted.to_offset)
    if asked.compaction and (of_log != (None,) * len(of_log) or asked.follow or conditions.unconsumed):
        raise click.UsageError("--compaction prints what is not in the log: only filters by content go with it")
    if conditions.unconsumed and asked.follow:
        raise click.UsageError("--unconsumed prints what is in the store now: do not combine it with --follow")


def _remark_damage(damage: Damage) -> None:
    place = f"{damage.physical_offset}{damage.path and f' of {damage.path}'}"
    remark(f"damage: {damage.code} at {place}, {damage.size} bytes: {damage.detail}")


def _remark_cut(physical_offset: int) -> None:
    remark(f"note: the log was cut at {physical_offset}, and is written again from there")


def _remark_compacted(store: ReadOnlyStore, asked: Sequence[str]) -> None:
    """Say what to do if compaction/ had no record of the topics."""
    from rmqctl.store.config.config_file import TOPICS_CONFIG, compaction_topics

    compacted = compaction_topics(store.config(TOPICS_CONFIG))
    if not compacted:
        remark("note: topics.json compacts no topic: leave out --compaction to print the log")
    elif asked and not compacted.intersection(asked):
        remark(f"note: compacted: {', '.join(sorted(compacted))}; leave out --compaction to print others from the log")


def _remark_range(log: CommitLog, wanted: Filter) -> None:
    """Say when the log begins and ends, if the asked time is before or after."""
    from rmqctl.format.timestamp import rfc3339

    if wanted.since is None and wanted.until is None:
        return
    begin, (_, last) = log.next_record(log.min_offset), log.end()
    first = None if begin is None else log.message_at(begin)
    if first is None or last is None:
        return
    begins, ends = first.store_timestamp, last.store_timestamp
    if (wanted.since is not None and wanted.since > ends) or (wanted.until is not None and wanted.until < begins):
        remark(f"the first message of the log was stored at {rfc3339(begins)}, the last at {rfc3339(ends)}")


def _finish(store: ReadOnlyStore, dump: Dump, asked: DumpOptions, wanted: Filter, *, cut_short_by: str) -> int:
    """Report the end of the scan on stderr, and return the exit code.

    `cut_short_by` is the reason for the end if the scan did not reach its own end.
    """
    from rmqctl.store.read.topic_names import unknown_topic

    store.list_all()
    summary = dump.summary
    stopped = cut_short_by if summary.stopped == "interrupted" else summary.stopped
    for topic in sorted(wanted.topics):
        unknown = unknown_topic(store, topic)
        if unknown:
            remark(f"note: {unknown}")
    note_unread(store)
    note_failed_bodies(dump.undecoded)
    # a block of lines may have more messages than the limit lets through
    matched = dump.matched if asked.limit is None else min(dump.matched, asked.limit - dump.damaged_rows)
    matching = (
        f"{summary.messages} messages"
        if asked.around is not None
        else f"{matched} of {summary.messages} messages matched"
    )
    read = f"scanned {summary.bytes_scanned} bytes: {matching}"
    remark(read if asked.compaction else f"{read}, ok up to {summary.ok_up_to}; stopped at {summary.end}: {stopped}")
    if not dump.matched and asked.compaction:
        _remark_compacted(store, sorted(wanted.topics))
    elif not dump.matched and not dump.incomplete and not asked.follow:
        _remark_range(store.commit_log, wanted)
    return int(outcome(incomplete=dump.incomplete or store.partly_read, findings=bool(dump.damages)))
