"""`rmqctl du`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import (
    note_unread,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.cli.views.inspect.du_view import print_space
from rmqctl.errors import ExitCode
from rmqctl.text import counted, size_text

if TYPE_CHECKING:
    from rmqctl.forensics.groups.lag import Lag
    from rmqctl.forensics.space.space import By
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=STORE_VERB,
    examples="""
        # which topic fills the disk
        rmqctl du /data/rocketmq/store
        # when the disk is full, and what expiry takes from groups that are behind
        rmqctl du store --broker-conf /etc/rocketmq/broker.conf
        # how much came on each day
        rmqctl du store --by day
        # which group's unread messages take the most
        rmqctl du store --by group
        # the five largest topics
        rmqctl du store -o json | jq '.topics[:5]'
    """,
)
@store_argument
@click.option(
    "--by",
    type=click.Choice(("topic", "queue", "day", "hour", "group")),
    default="topic",
    help="Show rows of these in the place of topics. Days and hours are UTC, by store time; the bytes of a group are "
    "those of messages that it has not consumed.",
)
@output_option("table", "json")
@scan_options
def command(store: Path, by: By, output: str, threads: int) -> int:
    """Show what takes the space of a store, by topic, and when the disk will be full.

    `bytes` of a topic are those of its whole messages in the log; the rest of the store is accounted for, too: the ends
    of log files, what no message has been written to, damage, queues, index, configuration, and anything else below
    STORE. SHARE is a topic's part of all messages' bytes. `a day` is the average from the log's first message to its
    last, with the units of queues and the entries of the index.

    A dead queue has no message left in the log, or a topic that topics.json does not list.

    With --broker-conf, `du` plays the time to come by a broker's rules, as `clean` has them: when the disk is so full
    that a broker deletes files before fileReservedTime or takes no more messages, how much the log needs for
    fileReservedTime, and which messages expire unread if their group consumes nothing until then.
    """
    from rmqctl.forensics.groups.lag import Lag
    from rmqctl.forensics.space.space import Space

    opened = open_store(store)
    space = Space(opened, by)
    warmed_up(space.log.warm_up)
    with opened.storage.keeping_small_files(), scan_progress(opened, "du"):
        document: dict[str, Any] = {"store": str(store)} | space.document(threads)
    if kept("broker_conf") is not None:
        lag = Lag(opened, counts_delayed=False)
        document["forecast"] = forecast_of(opened, document["bytesPerDay"], lag)
        if document["bytesPerDay"] is None:
            remark("note: the log is shorter than an hour, which does not say how much comes in a day: 0 is assumed")
        for problem in lag.problems:
            remark(problem)
    if output == "json":
        print_document("du", document)
    else:
        print_space(document, by)
    note_unread(opened)
    if cut := space.log.cut:
        size = size_text(sum(damage.size for damage in cut))
        files = counted(len(cut), "log file")
        why = "`rmqctl doctor` with the same options says why"
        remark(f"{size} of {files} are not counted: {cut[0].path}: {cut[0].detail}; {why}")
    incomplete = bool(cut) or opened.partly_read or space.log.summary.incomplete or not opened.path.reads_queues
    return int(ExitCode.PARTIAL if incomplete else ExitCode.CLEAN)


def forecast_of(store: ReadOnlyStore, growth: int | None, lag: Lag) -> dict[str, Any]:
    """Return the forecast of `du` for a store that grows by `growth` bytes a day."""
    from rmqctl.forensics.space.unread import unread
    from rmqctl.operations.clean.disk_use import disk_use
    from rmqctl.operations.clean.forecast import forecast, losses
    from rmqctl.store.config.store_path import CONSUMEQUEUE
    from rmqctl.store.read.version_guess import guess_profile

    profile = guess_profile(store)
    disks = [disk_use(store.storage, path, profile) for path in store.path.commitlogs]
    logics_disk = disk_use(store.storage, store.path.part(CONSUMEQUEUE), profile)
    found = forecast(store, profile, growth or 0, time.time_ns() // 1_000_000, disks, logics_disk)
    return found.to_json(losses(store, found.deleted, unread(store, lag)))
