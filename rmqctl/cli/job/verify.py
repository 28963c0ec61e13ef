"""`rmqctl job verify`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.job.by_store.each_store import Failed, begun_tasks, results
from rmqctl.cli.job.by_store.preparation import prepared
from rmqctl.cli.job.by_store.relayed_progress import RelayedProgress
from rmqctl.cli.job.spark_options import spark_options, spark_session, stores_argument
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import (
    ignore_receipts_option,
    note_unfinished_change,
    open_store,
    output_option,
    progress_option,
    verbose_option,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.verify_view import VerifiedStore, exit_code_of, print_report, print_stores
from rmqctl.spark.scan.split import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
    help="Level 1 checks the log. Level 2 also checks the queues. Level 3 also checks all other files.",
)
@ignore_receipts_option
@spark_options
@verbose_option
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(stores: tuple[Path, ...], level: int, ignore_receipts: bool, output: str) -> int:
    """Check stores on Spark in the same way as `rmqctl verify`.

    STORE is a URL such as s3://bucket/store, or a path under which every executor has access to the store. Executors
    need the libraries of rmqctl (numba, numpy, ...). rmqctl sends its own code to the executors. This job needs the
    extra `spark`.

    All stores are verified at the same time. A store is large if its log has more than a quarter of the bytes of all
    logs, and is not a DLedger group's. For a large store, many tasks read the log, and compare it with the queues and
    the index. Each other store is verified by one task. The output and the exit code are those of `rmqctl verify` for
    the same stores. If one store cannot be verified, the job continues with the other stores.
    """
    asked = HowToVerify(level, not ignore_receipts, kept("split_mib") * MIB)

    def open_one(store: Path) -> ReadOnlyStore:
        return open_store(store, log_only=level == 1)

    if len(stores) == 1:
        opened = open_one(stores[0])
        with spark_session() as spark, _begun(spark, [opened], asked=asked) as report_of:
            report = report_of(opened)
        return print_report(opened, report, output)
    verified = results(stores, open_one, partial(_begun, asked=asked))
    return print_stores(starmap(_verified, verified), output)


@dataclass(frozen=True)
class HowToVerify:
    """The options of a verification; `split_size` is in bytes."""

    level: int
    receipts: bool
    split_size: int


def _verified(path: Path, result: VerifyReport | Failed) -> VerifiedStore:
    if isinstance(result, Failed):
        return VerifiedStore(path, result.exit_code, None, result.error)
    return VerifiedStore(path, int(exit_code_of(result)), result)


@contextmanager
def _begun(
    spark: SparkSession, stores: list[ReadOnlyStore], *, asked: HowToVerify
) -> Iterator[Callable[[ReadOnlyStore], VerifyReport]]:
    """Start a Spark task for each store that is small enough for one task.

    Yield a function that returns the report of a store. If the store has no task, the function verifies the store.
    """
    from rmqctl.spark.question.verify import small_stores, whole_report

    work = partial(whole_report, level=asked.level, receipts=asked.receipts)
    small = dict.fromkeys(small_stores(stores), work)
    large = [store for store in stores if store not in small]
    with (
        _begun_splits(spark, large, asked) as of_large,
        # ends first: after the end of _begun_splits, which cancels all jobs, it would begin cancelled jobs again
        begun_tasks(spark, small, "verify") as of_small,
    ):
        yield lambda store: of_small(store) if store in small else of_large(store)


@contextmanager
def _begun_splits(
    spark: SparkSession, stores: Sequence[ReadOnlyStore], asked: HowToVerify
) -> Iterator[Callable[[ReadOnlyStore], VerifyReport]]:
    """Begin to verify stores with many Spark tasks, each for a part of a log.

    Yield a function that waits for the report of one store.
    """
    from rmqctl.spark.question.verify import verification
    from rmqctl.spark.session.session import cancel_jobs

    how = partial(verification, level=asked.level, split_size=asked.split_size, receipts=asked.receipts)
    begun = {store: (how(spark, store), RelayedProgress()) for store in stores}

    def verify(store: ReadOnlyStore) -> VerifyReport:
        found, relayed = begun[store]
        store.commit_log.on_progress = relayed.advance
        found.run()
        return found.report

    for found, _ in begun.values():
        warmed_up(found.warm_up)
    with prepared(stores, verify, partial(cancel_jobs, spark)) as result_of:

        def report_of(store: ReadOnlyStore) -> VerifyReport:
            with begun[store][1].shown(kept("progress_mode"), store.commit_log.size, "verify"):
                report = result_of(store)
            note_unfinished_change(store)
            return report

        yield report_of
