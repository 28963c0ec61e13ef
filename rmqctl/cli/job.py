"""`rmqctl job NAME`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import click

from rmqctl.cli.job_rebuild import rebuild
from rmqctl.cli.options import open_store, output_option, progress_option, store_argument
from rmqctl.cli.render import progress
from rmqctl.cli.verb import SCAN_VERB, Verb
from rmqctl.errors import BadRequest

SPLIT_MIB_MAX = 4096
MIB = 1024 * 1024


@click.group(name="job", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The same questions on Spark: to stores that one machine is too small for."""


command.add_command(rebuild)


@command.command(
    "verify",
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples=(
        ("rmqctl job verify /mnt/incident/broker-a/store", "on all cores of this machine"),
        (
            "rmqctl job verify /mnt/incident/broker-a/store --master spark://spark1:7077",
            "on a cluster whose workers see /mnt, too",
        ),
    ),
)
@store_argument
@click.option("--level", type=click.IntRange(1, 3), default=3, show_default=True, help="As `rmqctl verify`.")
@click.option("--master", help="A Spark master: spark://HOST:7077, yarn, local[4].  [default: local[*], or spark-submit's]")
@click.option("--remote", help="A Spark Connect server: sc://HOST:15002.")
@click.option("--split-mib", type=click.IntRange(1, SPLIT_MIB_MAX), default=128, show_default=True, help="MiB of the log for each task.")
@output_option("table", "json", "jsonl", "csv")
@progress_option
def verify(
    store: Path,
    broker_conf: Path | None,
    follow_links: bool,
    level: int,
    master: str | None,
    remote: str | None,
    split_mib: int,
    output: str,
    progress_mode: str,
) -> int:
    """Is the store whole? As `rmqctl verify`, finding by finding, with the log read by Spark's tasks.

    Every executor must see STORE under the same path, and have rmqctl's libraries (numba, numpy, ...) installed; rmqctl itself is sent.
    The queues and the index are read here. Needs the extra: pip install 'rmqctl[spark]'.
    """
    if master and remote:
        raise click.UsageError("--master or --remote, not both")
    if find_spec("pyspark") is None:
        raise BadRequest("PySpark is not installed", hint="pip install 'rmqctl[spark]'")
    from rmqctl.cli.kernel_cache import find_folder
    from rmqctl.cli.verify import print_report
    from rmqctl.jobs.session import Target, session
    from rmqctl.jobs.verify import verify as run

    opened = open_store(store, broker_conf, follow_links)
    with session(Target(master, remote), os.environ) as spark, progress(progress_mode, opened.commit_log.size, "verify") as advance:
        opened.commit_log.on_progress = advance
        report = run(spark, opened, find_folder(), level=level, split_size=split_mib * MIB)
    return print_report(report, output)
