"""`rmqctl job verify`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.job.spark_options import spark_options, spark_session, stores_argument
from rmqctl.cli.output.complaint import report_error
from rmqctl.cli.output.render import progress
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.options import ignore_receipts_option, open_store, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.verify_view import VerifiedStore, exit_code_of, print_report, print_stores
from rmqctl.errors import RmqctlError
from rmqctl.spark.scan.split_size import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    short_help="The findings of `rmqctl verify` for huge or many stores.",
    exit_codes=SCAN_VERB,
    examples="""
        # on all cores of this machine
        rmqctl job verify /mnt/incident/broker-a/store
        # on a cluster whose workers also have access to /mnt
        rmqctl job verify /mnt/incident/broker-a/store --master spark://spark1:7077
        # all brokers of a cluster at once
        rmqctl job verify /mnt/incident/*/store --master spark://spark1:7077
    """,
)
@stores_argument
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
    stores: tuple[Path, ...],
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
    """Check stores on Spark in the same way as `rmqctl verify`.

    STORE is a URL such as s3://bucket/store, or a path under which every executor has access to the store. Executors
    need the libraries of rmqctl (numba, numpy, ...). rmqctl sends its own code to the executors. This job needs the
    extra `spark`: in the clone, `pipx install --force '.[spark]'`.

    One store is read by many tasks, and rmqctl compares its log with the queues and the index on this machine. Several
    stores are verified at the same time. Each task verifies a whole store, except a store that has more than a quarter
    of all bytes. The output and the exit code are those of `rmqctl verify` for the same stores. If one store cannot be
    verified, the job continues with the other stores.
    """
    asked = HowToVerify(level, not ignore_receipts, split_mib * MIB, progress_mode)
    open_one = partial(open_store, broker_conf=broker_conf, follow_links=follow_links, log_only=level == 1)
    if len(stores) == 1:
        opened = open_one(stores[0])
        with spark_session(master, remote) as spark:
            report = _by_splits(spark, opened, asked)
        return print_report(opened, report, output)
    found = {store: _opened(partial(open_one, store)) for store in dict.fromkeys(stores)}
    return print_stores(_verified(found, asked, partial(spark_session, master, remote)), output)


@dataclass(frozen=True)
class HowToVerify:
    """The options that say what is checked, and how; `split_size` is in bytes."""

    level: int
    receipts: bool
    split_size: int
    progress_mode: str


def _opened(open_one: Callable[[], ReadOnlyStore]) -> ReadOnlyStore | Exception:
    """Return an opened store, or the error that prevents opening it."""
    try:
        return open_one()
    except (RmqctlError, OSError) as error:
        return error


def _verified(
    found: dict[Path, ReadOnlyStore | Exception],
    asked: HowToVerify,
    spark_session: Callable[[], AbstractContextManager[SparkSession]],
) -> Iterator[VerifiedStore]:
    """Verify several stores at once, and yield each with its report or error."""
    from rmqctl.spark.question.whole_stores import reports_of

    opened = [store for store in found.values() if not isinstance(store, Exception)]
    with ExitStack() as stack:
        if opened:
            spark = stack.enter_context(spark_session())
            _warm_up(max(opened, key=lambda store: store.commit_log.size), asked)
            reports = stack.enter_context(reports_of(spark, opened, level=asked.level, receipts=asked.receipts))
        for path, store in found.items():
            try:
                if isinstance(store, Exception):
                    raise store
                report = _waited(reports[store], store, asked) if store in reports else _by_splits(spark, store, asked)
            except (RmqctlError, OSError) as error:
                yield VerifiedStore(path, report_error(error), None, str(error))
            else:
                yield VerifiedStore(path, int(exit_code_of(report)), report)


def _warm_up(store: ReadOnlyStore, asked: HowToVerify) -> None:
    """Compile the kernels once, before the tasks on this machine need them."""
    from rmqctl.forensics.verify import Verification

    warmed_up(Verification(store, asked.level).warm_up)


def _waited(report: Callable[[], VerifyReport], store: ReadOnlyStore, asked: HowToVerify) -> VerifyReport:
    """Return the report of a task, and show the progress of its store."""
    with progress(asked.progress_mode, store.commit_log.size, "verify") as told:
        found = report()
        told(store.commit_log.size)
    return found


def _by_splits(spark: SparkSession, store: ReadOnlyStore, asked: HowToVerify) -> VerifyReport:
    """Verify a store whose log is read by many tasks."""
    from rmqctl.spark.question.verify import verification

    found = verification(spark, store, level=asked.level, split_size=asked.split_size, receipts=asked.receipts)
    with progress(asked.progress_mode, store.commit_log.size, "verify") as told:
        store.commit_log.on_progress = told
        warmed_up(found.warm_up)
        found.run()
    return found.report
