"""The log records that a job reads from its stores.

A job reads only the columns that it needs. The records are counted on the way, and a `Proof` shows that all were read.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqctl.spark.question.proof import NEEDED, Proof, with_coverage
from rmqctl.spark.scan.coverage import NotAllRead
from rmqctl.spark.scan.pieces import pieces_to_json
from rmqctl.spark.source.message_schema import MESSAGE_COLUMNS, ddl
from rmqctl.spark.source.message_source import splits_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.spark.scan.coverage import Coverage
    from rmqctl.spark.scan.pieces import Pieces
    from rmqctl.spark.scan.split import Split

T = TypeVar("T")

EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
# this rule removes a part of a plan that had no rows, after it was read, and loses its observations
EMPTY_IS_DROPPED = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"


class LogRecords(NamedTuple):
    """The log records of the stores at `paths`."""

    spark: SparkSession  # in which the data source is registered
    paths: Sequence[str]
    options: Mapping[str, str]  # of the data source
    columns: Sequence[str]
    source: str = "rocketmq"  # `rocketmq` (records), `rocketmq-groups` (counts of messages) or a format of one job
    only: tuple[Split, ...] = ()  # if not empty, only these splits are read, and not the whole log

    def table(self, splits: Sequence[Split], *, ranges: bool = False) -> DataFrame:
        """Return a table of the records in `splits`, or if that is empty, in `only`.

        If both are empty, the data source makes its own splits. With `ranges`, the table also has the rows and columns
        that a `Proof` needs.
        """
        needed = dict.fromkeys((*(NEEDED if ranges else ("kind",)), *self.columns))
        options = {**self.options, "columns": ",".join(needed), "ranges": str(ranges).lower()}
        if splits or self.only:
            options["splits"] = splits_to_json(splits or self.only)
        return self.spark.read.format(self.source).options(**options).load(list(self.paths))

    def proved(self, splits: Sequence[Split]) -> tuple[DataFrame, Proof]:
        """Return a table of the records in `splits`, and its `Proof`.

        After the first action on the table, the `Proof` shows whether this read all records.
        """
        return with_coverage(self.table(splits, ranges=True))

    def at(self, pieces: Sequence[Pieces] | None) -> tuple[DataFrame, Proof | None]:
        """Return a table of the records in `pieces`, and its `Proof`.

        The table also has the damage between files. If `pieces` is None, it is empty, and needs no data source and no
        proof.
        """
        if pieces is None:
            return self.spark.createDataFrame([], ddl(MESSAGE_COLUMNS, dict.fromkeys(("kind", *self.columns)))), None
        return self._replace(options={**self.options, "pieces": pieces_to_json(pieces)}).proved(())

    def summarised(self, source: str, columns: Sequence[str], **options: str) -> LogRecords:
        """Return the rows that the data source `source` makes of the same stores."""
        return self._replace(source=source, columns=columns, options={**self.options, **options})


def ask(
    records: Sequence[LogRecords], question: Callable[..., T], *, patience: float | None = None
) -> tuple[T, list[Coverage]]:
    """Return the result of `question`, and what was read of each item of `records`.

    `question` is called with one DataFrame for each item. Its first Spark action must read all of them.

    Each task guesses where the first record of its split begins. If one guessed wrong, `question` is called again, with
    other splits. Raises NotAllRead or Unreadable if a part of a log was not read.

    With `patience`, the action may have read only a part, which raises NotAllRead: at the latest after this number of
    seconds.
    """
    splits: list[tuple[Split, ...]] = [() for _ in records]
    while True:
        proved = [one.proved(given) for one, given in zip(records, splits, strict=True)]
        with _all_is_kept(records[0].spark):
            answer = question(*(table for table, _ in proved))
        if patience is not None and not all(proof.is_there(patience) for _, proof in proved):
            raise NotAllRead("nothing proves that it was read: Spark does not tell")
        found = [proof.coverage(one.only) for one, (_, proof) in zip(records, proved, strict=True)]
        splits = [one.splits for one in found]
        if all(one.joined for one in found):
            return answer, found


def ask_at(
    records: Sequence[LogRecords], pieces: Sequence[tuple[Sequence[Pieces] | None, int]], question: Callable[..., T]
) -> T:
    """Return the result of `question` on pieces of logs.

    `question` is called with one DataFrame for each item of `records`, and its first Spark action must read all of
    them. `pieces` has, for each item, the pieces (None: an empty table) and the number of their messages. Raises
    Unreadable if a piece was not read.
    """
    read = [one.at(some) for one, (some, _) in zip(records, pieces, strict=True)]
    with _all_is_kept(records[0].spark):
        answer = question(*(table for table, _ in read))
    for (_, proof), (_, messages) in zip(read, pieces, strict=True):
        if proof is not None:
            proof.check_pieces(messages)
    return answer


@contextmanager
def _all_is_kept(spark: SparkSession) -> Iterator[None]:
    """Keep the results of `DataFrame.observe` for all actions in the block.

    By default, Spark drops a part of a plan that has no rows, and its results of `observe`.
    """
    before = spark.conf.get(EXCLUDED_RULES, None)
    spark.conf.set(EXCLUDED_RULES, ",".join(filter(None, (before, EMPTY_IS_DROPPED))))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(EXCLUDED_RULES)
        else:
            spark.conf.set(EXCLUDED_RULES, before)
