"""`rmqctl clean`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.option_class import kept, options_in
from rmqctl.cli.shared.options import COUNT, POSITIVE, check_numbers, open_store, output_option, store_argument
from rmqctl.cli.shared.own_files import check_places
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.sizes import SIZE
from rmqctl.cli.shared.times import TIME
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb
from rmqctl.cli.views.change.clean_run import GAUGES, CleanOptions, CleanRun
from rmqctl.cli.views.metrics_file import MetricsFile, with_metrics

PERCENT = click.IntRange(0, 100)
SECONDS = click.FloatRange(0, 86_400)


def _hours(text: str) -> tuple[int, ...]:
    from rmqctl.store.config.clean_config import parse_hours

    return parse_hours(text)


@click.command(
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples="""
        # show for each file whether a broker would delete it now, and why
        rmqctl clean store --dry-run
        # delete what a broker would delete in this hour, and report the result in one line
        rmqctl clean store --broker-conf broker.conf --yes
        # delete files older than two days, in any hour
        rmqctl clean store --reserved-hours 48 --manual --yes
        # delete the oldest files until the log has at most 500 GB
        rmqctl clean store --keep-bytes 500GB --yes
        # for a copy with wrong file times, made without `cp -p`
        rmqctl clean copy --by store-timestamp --dry-run
    """,
)
@store_argument
@click.option(
    "--reserved-hours",
    type=COUNT,
    help="The age, in hours, at which a file expires.  [default: fileReservedTime, 72]",
)
@click.option(
    "--when",
    "delete_when",
    type=Parsed("hours", _hours),
    help="In these hours (local time), such as 04 or 04;05, delete files older than --reserved-hours. The value "
    "24 means never.  [default: deleteWhen, 04]",
)
@click.option(
    "--max-disk-percent",
    type=PERCENT,
    help="If more than this percentage of the disk is used, delete files older than --reserved-hours even outside the "
    "hours of --when. A value below 10 counts as 10, and a value above 95 as 95.  [default: diskMaxUsedSpaceRatio, 75]",
)
@click.option(
    "--force-percent",
    type=PERCENT,
    help="If more than this percentage of the disk is used, delete files of any age. For 5.x, a value below 30 counts "
    "as 30, and a value above 85 as 85.  [default: diskSpaceCleanForciblyRatio of 5.x, 85]",
)
@click.option(
    "--manual",
    is_flag=True,
    help="Ignore --when: delete files older than --reserved-hours, as brokers do after mqadmin deleteExpiredCommitLog.",
)
@click.option(
    "--keep-bytes",
    type=SIZE,
    help="Ignore the rules of age and disk usage, and delete files until the log has at most this many bytes (500GB, "
    "465GiB).",
)
@click.option(
    "--keep-files",
    type=POSITIVE,
    help="Ignore the rules of age and disk usage, and delete files until the log has at most this many files.",
)
@click.option(
    "--batch",
    type=POSITIVE,
    help="The number of log files that a broker deletes in one round. --manual runs 20 rounds.  [default: "
    "deleteFileBatchMax of 5.x, 10]",
)
@click.option(
    "--interval",
    type=COUNT,
    default=100,
    help="After each deleted file, wait this many ms before the next file.",
)
@click.option(
    "--max-bytes-per-second",
    type=SIZE,
    help="Free at most this many bytes of disk space per second. 0 means no limit.",
)
@click.option("--now", type=TIME, help="Delete the files that would be expired at this time.  [default: now]")
@click.option(
    "--by",
    type=click.Choice(("mtime", "store-timestamp")),
    default="mtime",
    help="Compute the age of a file from its modification time, as brokers do, or from the store time of its last "
    "message.",
)
@click.option(
    "--protect-unconsumed",
    is_flag=True,
    help="Keep each log file with messages that are not consumed or not delivered yet, and all later log files.",
)
@click.option(
    "--unused-topics", is_flag=True, help="Also remove empty queues of topics that config/topics.json does not list."
)
@click.option(
    "--lock-wait",
    type=SECONDS,
    default=0,
    help="If a broker or rmqctl has the store open, wait at most this many seconds.",
)
@click.option(
    "--log-json",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also append the receipts of deleted files to this file. rmqctl always appends the receipts to "
    "STORE/rmqctl-clean.log.",
)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the results of the run to this file, as metrics for Prometheus.",
)
@change_options
@output_option("table", "json", "jsonl", "csv")
@options_in(asked=CleanOptions)
def command(store: Path, asked: CleanOptions) -> int:
    """Delete expired files, by the rules of a broker.

    Log files expire by age, by disk usage, or by a limit that you set. `clean` deletes the oldest log files first, and
    never deletes the last log file. `clean` also deletes files of queues, extensions and the index that point to no
    remaining log file. `clean` first moves a file to STORE/.rmqctl, which no broker reads. `clean` then writes a
    receipt for the file, and deletes the file. An interrupted run leaves no gap in the log. The next run of `clean`
    finishes an interrupted run.

    `clean` cannot be undone. For each file, --dry-run shows whether `clean` would delete the file, and why. --dry-run
    also shows, for each file, how many messages are not consumed yet. Stop the broker first. While a broker runs,
    `clean` without --dry-run exits with 11. A running broker deletes expired files itself. The disk space of a deleted
    file does not become free while a broker has the file open.
    """
    files = {"--metrics": asked.metrics, "--log-json": asked.log_json}
    check_places([store], files)
    gauges = MetricsFile("clean", store, GAUGES)

    def run() -> int:
        _wait_for_lock(store, asked)
        opened = open_store(store)
        check_places(opened.path.commitlogs, files)
        check_numbers(opened.conf)
        return CleanRun(opened, asked, gauges, has_conf=kept("broker_conf") is not None).run()

    return with_metrics(gauges, asked.metrics, run)


def _wait_for_lock(store: Path, asked: CleanOptions) -> None:
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.operations.clean.execute import wait_for_lock

    if not asked.dry_run:
        wait_for_lock(Storage(store), store, asked.lock_wait)
