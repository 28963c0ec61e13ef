"""The records of stores' logs for a job: only the columns that it needs, counted on their way, and proved to be all of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rmqctl.jobs.log_split import Split
from rmqctl.jobs.message_schema import KIND_BLANK, KIND_DAMAGE, KIND_MESSAGE
from rmqctl.jobs.message_source import splits_to_json
from rmqctl.jobs.proof import NEEDED, Proof, with_coverage
from rmqctl.store.commit_log import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Observation, SparkSession

T = TypeVar("T")

EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
# it drops, behind their reading, parts of a plan that came to no rows, and what was observed in them
EMPTY_IS_DROPPED = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


class Scan(NamedTuple):
    """What a job read: whole messages and their bytes, blanks, damaged places, and those of them that could not be read.

    Of one store: `begin` and `end`, physical offsets of its first record or damage, and behind its last good record; none without any.
    `splits` are those that were read, proved to join.
    """

    messages: int
    bytes: int
    blanks: int
    damages: int
    unreadable: int
    begin: int | None
    end: int | None
    splits: tuple[Split, ...]


class LogRecords(NamedTuple):
    """The `columns` of the records of the stores at `paths`; `options` are those of the data source `rocketmq`, which `spark` knows."""

    spark: SparkSession
    paths: Sequence[str]
    options: Mapping[str, str]
    columns: Sequence[str]

    def table(self, splits: Sequence[Split], **options: str) -> DataFrame:
        """The records of `splits` (none: of splits of our own)."""
        if splits:
            options["splits"] = splits_to_json(splits)
        needed = dict.fromkeys((*NEEDED, "damage", *self.columns))
        options = {**self.options, "columns": ",".join(needed), **options}
        return self.spark.read.format("rocketmq").options(**options).load(list(self.paths))

    def observed(self, splits: Sequence[Split]) -> tuple[DataFrame, Proof, Observation]:
        """The table, what proves that all of it was read, and what an action sees of it."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        table, proof = with_coverage(self.table(splits, ranges="true"))
        observation = Observation()
        is_message, is_damage = f.col("kind") == KIND_MESSAGE, f.col("kind") == KIND_DAMAGE
        seen = table.observe(
            observation,
            f.count_if(is_message).alias("messages"),
            f.coalesce(f.sum(f.when(is_message, f.col("size"))), f.lit(0)).alias("bytes"),
            f.count_if(f.col("kind") == KIND_BLANK).alias("blanks"),
            f.count_if(is_damage).alias("damages"),
            f.count_if(is_damage & f.col("damage").isin(*UNREADABLE)).alias("unreadable"),
            f.min("physicalOffset").alias("begin"),
            f.max(f.when(~is_damage, f.col("physicalOffset") + f.col("size"))).alias("end"),
        )
        return seen, proof, observation


def ask(records: Sequence[LogRecords], question: Callable[..., T]) -> tuple[T, list[Scan]]:
    """The answer of `question`, called with a DataFrame of each of `records`, all of which its first action must read; and what was read.

    Where a task's guess of where its split begins was wrong, the question is asked again with other splits. Raises Unreadable where a
    part of a log was not read.
    """
    splits: list[tuple[Split, ...]] = [() for _ in records]
    while True:
        seen = [one.observed(given) for one, given in zip(records, splits, strict=True)]
        with _all_is_kept(records[0].spark):
            answer = question(*(table for table, _, _ in seen))
        found = [proof.coverage() for _, proof, _ in seen]
        splits = [one.splits for one in found]
        if all(one.joined for one in found):
            counts: list[dict[str, Any]] = [observation.get for _, _, observation in seen]
            return answer, [Scan(**one, splits=read) for one, read in zip(counts, splits, strict=True)]


@contextmanager
def _all_is_kept(spark: SparkSession) -> Iterator[None]:
    """Around an action of which every observation is wanted."""
    before = spark.conf.get(EXCLUDED_RULES, None)
    spark.conf.set(EXCLUDED_RULES, ",".join(filter(None, (before, EMPTY_IS_DROPPED))))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(EXCLUDED_RULES)
        else:
            spark.conf.set(EXCLUDED_RULES, before)
