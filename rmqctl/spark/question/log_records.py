"""The records of stores' logs for a job.

Only the columns that it needs, counted on their way, and proved to be all of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqctl.spark.question.proof import NEEDED, Proof, with_coverage
from rmqctl.spark.scan.log_split import Split
from rmqctl.spark.scan.record_counts import RecordCounts
from rmqctl.spark.source.message_source import splits_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
# it drops, after their reading, parts of a plan that came to no rows, and what was observed in them
EMPTY_IS_DROPPED = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


class Scan(NamedTuple):
    """What a job read: the counts, of one store or several, and the splits, proved to join."""

    counts: RecordCounts
    splits: tuple[Split, ...]


class LogRecords(NamedTuple):
    """The `columns` of the records of the stores at `paths`.

    `options` are those of the data source `rocketmq`, which `spark` knows.
    """

    spark: SparkSession
    paths: Sequence[str]
    options: Mapping[str, str]
    columns: Sequence[str]

    def table(self, splits: Sequence[Split], **options: str) -> DataFrame:
        """Return the records of `splits` (none: of splits of our own)."""
        if splits:
            options["splits"] = splits_to_json(splits)
        needed = dict.fromkeys((*NEEDED, "damage", *self.columns))
        options = {**self.options, "columns": ",".join(needed), **options}
        return self.spark.read.format("rocketmq").options(**options).load(list(self.paths))

    def proved(self, splits: Sequence[Split]) -> tuple[DataFrame, Proof]:
        """Return the table, and what proves that an action read all of it."""
        return with_coverage(self.table(splits, ranges="true"))


def ask(records: Sequence[LogRecords], question: Callable[..., T]) -> tuple[T, list[Scan]]:
    """Return the answer of `question`, and what was read.

    It is called with a DataFrame of each of `records`, all of which its first action must read.

    Where a task's guess of where its split begins was wrong, the question is asked again with other splits. Raises
    Unreadable where a part of a log was not read.
    """
    splits: list[tuple[Split, ...]] = [() for _ in records]
    while True:
        proved = [one.proved(given) for one, given in zip(records, splits, strict=True)]
        with _all_is_kept(records[0].spark):
            answer = question(*(table for table, _ in proved))
        found = [proof.coverage() for _, proof in proved]
        splits = [one.splits for one in found]
        if all(one.joined for one in found):
            return answer, [Scan(one.counts, one.splits) for one in found]


@contextmanager
def _all_is_kept(spark: SparkSession) -> Iterator[None]:
    """Keep every observation of an action, even of a table that Spark finds empty."""
    before = spark.conf.get(EXCLUDED_RULES, None)
    spark.conf.set(EXCLUDED_RULES, ",".join(filter(None, (before, EMPTY_IS_DROPPED))))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(EXCLUDED_RULES)
        else:
            spark.conf.set(EXCLUDED_RULES, before)
