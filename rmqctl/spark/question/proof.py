"""A table of messages, with the proof that one action read the whole table.

Each task reports which range of the log it read. A `Proof` checks that the ranges leave out no part.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, Unreadable
from rmqctl.spark.scan.coverage import Coverage, check_pieces, coverage, range_of
from rmqctl.spark.source.message_schema import KIND_RANGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, Observation

    from rmqctl.spark.scan.split import Split

POLL_SECONDS = 0.005
WAIT_SECONDS = 30
NEEDED = ("kind", "detail")


class Proof:
    """The proof that the first action on a table read all splits.

    Call the methods after this action.
    """

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    def coverage(self, only: Sequence[Split] = ()) -> Coverage:
        """Check whether the ranges of the tasks join without gaps.

        They must cover the whole log, or if `only` is not empty, what these splits cover.

        If `joined` of the result is False, read the stores again, with the `splits` of the result (`splits_to_json`
        makes the option of them). Raises Unreadable if a split is missing.
        """
        return coverage(map(range_of, self._ranges()), only)

    def check_pieces(self, messages: int) -> None:
        """Raise Unreadable if the action did not read all pieces, with their `messages`."""
        check_pieces(map(range_of, self._ranges()), messages)

    def check(self) -> None:
        """Raise Unreadable if the action did not read each byte of each log exactly once."""
        found = self.coverage()
        if not found.joined:
            hint = f"read {len(found.splits)} other splits: option `splits`"
            raise Unreadable(
                "a split of the log did not begin where the one before it ended", path=found.splits[0].root, hint=hint
            )

    def is_there(self, seconds: float) -> bool:
        """Return whether the result of the action arrives within some seconds.

        Some versions of Spark never tell the result of an action that did not need the table; others tell each within
        milliseconds after the action. With Spark Connect, it never arrives.
        """
        from py4j.protocol import Py4JError

        end = time.monotonic() + seconds
        try:
            future = self._observation._jo.future()  # type: ignore[union-attr]
            while not (done := bool(future.isCompleted())) and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
        except (AttributeError, Py4JError):
            return False
        return done

    def _ranges(self) -> list[str]:
        # the results of `DataFrame.observe`. If Spark did not read the table, they are empty, and 4.0 waits for ever
        from py4j.protocol import Py4JError

        if hasattr(self._observation, "_jo") and not self.is_there(WAIT_SECONDS):
            return []
        try:
            found: str = self._observation.get.get("ranges", "")
        except Py4JError:
            found = ""
        return found.split("\n") if found else []


def with_coverage(table: DataFrame) -> tuple[DataFrame, Proof]:
    """Return `table` without the rows of kind 'range', and a `Proof`.

    `table` must come from `rocketmq` or `rocketmq-groups`, with the option `ranges`. The `Proof` is valid for one
    action on the returned table. Raises BadRequest if `table` does not have the columns NEEDED.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise BadRequest(
            f"the table has no column {missing[0]}", hint=f"its option `columns` must have {', '.join(NEEDED)}"
        )
    observation = Observation()
    is_range = f.col("kind") == KIND_RANGE
    # as text: PySpark 4.0 does not convert an observed list
    ranges = f.concat_ws("\n", f.collect_list(f.when(is_range, f.col("detail")))).alias("ranges")
    return table.observe(observation, ranges).where(~is_range), Proof(observation)
