"""Read the splits of a log in a Spark job, with one task for each split."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqctl.spark.scan.log_split import Found, Reading, read_split
from rmqctl.spark.scan.task_answers import answers
from rmqctl.spark.session.spark_error import spark_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from rmqctl.spark.scan.split import Split


def read_splits(spark: SparkSession, splits: Sequence[Split], reading: Reading) -> dict[Split, Callable[[], Found]]:
    """Read splits in one Spark job, and return the results of the tasks.

    For each split, the result has a function that unpacks and returns the `Found` of the split. Raises Unreadable if
    Spark fails.
    """
    with spark_errors(f"{splits[0].root}: Spark could not read the log"):
        found = answers(spark, [partial(read_split, split, reading) for split in splits])
    return {splits[number]: result for number, result in found.items()}
