"""`rmqctl job verify`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.job.spark_options import spark_options, spark_session, store_argument
from rmqctl.cli.output.render import progress
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.options import ignore_receipts_option, open_store, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.spark.scan.split_size import MIB


@click.command(
    cls=Verb,
    short_help="The findings of `rmqctl verify`, with Spark.",
    exit_codes=SCAN_VERB,
    examples="""
        # on all cores of this machine
        rmqctl job verify /mnt/incident/broker-a/store
        # on a cluster whose workers also have access to /mnt
        rmqctl job verify /mnt/incident/broker-a/store --master spark://spark1:7077
    """,
)
@store_argument
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=3,
    show_default=True,
    help="Level 1 checks the log. Level 2 also checks the queues. Level 3 also checks all other files.",
)
@ignore_receipts_option
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(
    store: Path,
    broker_conf: Path | None,
    follow_links: bool,
    level: int,
    ignore_receipts: bool,
    master: str | None,
    remote: str | None,
    split_mib: int,
    output: str,
    progress_mode: str,
) -> int:
    """Check a store on Spark in the same way as `rmqctl verify`.

    STORE is a URL such as s3://bucket/store, or a path under which every executor has access to the store. Executors
    need the libraries of rmqctl (numba, numpy, ...). rmqctl sends its own code to the executors. rmqctl reads the
    queues and the index on this machine. This job needs the extra `spark`: in the clone,
    `pipx install --force '.[spark]'`.
    """
    from rmqctl.cli.views.inspect.verify_view import print_report
    from rmqctl.spark.question.verify import verification

    opened = open_store(store, broker_conf, follow_links)
    with spark_session(master, remote) as spark, progress(progress_mode, opened.commit_log.size, "verify") as advance:
        opened.commit_log.on_progress = advance
        found = verification(spark, opened, level=level, split_size=split_mib * MIB, receipts=not ignore_receipts)
        warmed_up(found.warm_up)
        found.run()
    return print_report(opened, found.report, output)
