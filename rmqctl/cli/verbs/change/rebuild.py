"""`rmqctl rebuild`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.shared.change import LogChangeOptions
from rmqctl.cli.shared.confirm import change_options, check_can_ask
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    OFFSET,
    open_store,
    output_option,
    profile_option,
    scan_options,
    store_argument,
)
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.views.change.rebuild_run import HowToRebuild, check_store, look_or_make, warm_up_kernels
from rmqctl.cli.views.change.refill_view import refill_queues
from rmqctl.cli.views.change.repair_view import REPAIR_VERB
from rmqctl.cli.views.change.timer_view import rebuild_timers

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.rebuild.selection import Selection

TIMERS = "timers"
WHAT = ("queues", "index", "all")


@dataclass(frozen=True)
class RebuildOptions:
    """The options of `rmqctl rebuild` that select queues."""

    topic: str | None = None
    queue_id: int | None = None
    all_topics: bool = False


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples="""
        # show how many units would differ from the existing units
        rmqctl rebuild store all --dry-run
        # the queues of one topic
        rmqctl rebuild store queues --topic OrderPaid --yes
        # only the index
        rmqctl rebuild store index --yes
        # the files of the timer of 5.x, so that each waiting message is delivered once
        rmqctl rebuild store timers --dry-run
        # undo the change
        rmqctl undo store --yes
    """,
)
@store_argument
@click.argument("what", type=click.Choice((*WHAT, TIMERS)))
@click.option("--topic", help="Rebuild only the queues of this topic.")
@click.option(
    "--queue", "queue_id", type=OFFSET, help="Rebuild only one queue of the topic: the queue with this queueId."
)
@click.option(
    "--all-topics", is_flag=True, help="Also rebuild queues of deleted topics, which config/topics.json does not list."
)
@click.option("--resume", is_flag=True, help="Continue the rebuild that was interrupted.")
@profile_option("Write the index as brokers of this version do.")
@change_options
@output_option("table", "json")
@scan_options
@options_in(asked=RebuildOptions, given=LogChangeOptions)
def command(
    store: Path, what: str, profile: Profile | None, resume: bool, asked: RebuildOptions, given: LogChangeOptions
) -> int:
    """Rebuild queues and index from the log.

    rmqctl writes the new queues and the new index beside the old files. After a check, the new files replace the old
    files. rmqctl keeps the old files until `rmqctl undo --drop`. `rebuild` writes a unit for each message of the log,
    including messages after damage. `rebuild` does not check the bodies of messages. To check the bodies, use `verify`.
    A rebuilt queue begins with the queue's oldest message in the log. A queue without a message in the log stays
    unchanged. A topic that config/topics.json does not list gets no new queue, and keeps those that it has: its entry
    may be lost (`config restore --from store`). To remove the queues of a deleted topic, name it with --topic.

    New files have the sizes of the existing files. If no files exist, rmqctl uses the sizes in --broker-conf, or the
    broker's defaults.

    `rebuild` exits with 3 if a new queue or the new index differs from the old files, otherwise with 0. With --dry-run,
    `rebuild` exits with 1 if a queue or the index differs, otherwise with 0. `rebuild` also simulates the next start of
    the broker. A message counts as lost if the broker would not serve the message after the next start. Ctrl-C leaves
    the store unchanged, and --resume continues the rebuild. While a broker has the store open, `rebuild` exits with 11.

    Queues in RocksDB are not written: `rebuild STORE queues` removes their database, and the next start of the broker
    fills it from the log.

    `rebuild STORE timers` writes timerlog/, timerwheel and config/timercheck of 5.x anew, for the messages of
    rmq_sys_wheel_timer without a delivered copy in the log. A broker then delivers each of them once. What is overdue
    comes at once. If the files lead to all of them already, there is nothing to do. With timerRocksDBEnable, the
    database in rocksdbstore/ is removed if it would deliver messages again, and has no index and no transactions.
    """
    if what == TIMERS and (asked != RebuildOptions() or resume):
        raise click.UsageError("--topic, --queue, --all-topics and --resume are for queues: the timer has one queue")
    selected = selection(what, asked)
    from rmqctl.kernels import dispatch_scan, scan
    from rmqctl.kernels.warm_up import warm_up
    from rmqctl.store.config.store_path import Layout

    opened = open_store(store)
    fingerprint = opened.fingerprint()
    check_store(opened, refills=True)
    if what == TIMERS:
        warmed_up(partial(warm_up, scan, dispatch_scan, size=opened.commit_log.queue.allocated))
        return rebuild_timers(opened, fingerprint, given)
    if selected.queues and opened.path.layout in (Layout.ROCKSDB, Layout.COMBINED):
        return refill_queues(opened, fingerprint, selected, profile, given)
    check_can_ask(yes=given.yes or given.dry_run)
    warmed_up(partial(warm_up_kernels, opened.allocated))
    how = HowToRebuild(**vars(given), selection=selected, profile=profile)
    return look_or_make(opened, fingerprint, how, resume=resume)


def selection(what: str, asked: RebuildOptions) -> Selection:
    """Return the queues and the index that the options select for the rebuild.

    Raises UsageError if options contradict each other.
    """
    from rmqctl.operations.rebuild.selection import Selection

    if asked.queue_id is not None and asked.topic is None:
        raise click.UsageError("--queue needs --topic")
    if what != "queues" and asked.topic is not None:
        raise click.UsageError("the index covers all topics: use --topic with `queues`")
    return Selection(queues=what != "index", index=what != "queues", **vars(asked))
