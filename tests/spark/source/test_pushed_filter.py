"""Filters of Spark's as ours: what is left out must be left out by Spark, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmqctl.forensics.message_filter import Filter
from rmqctl.spark.source.pushed_filter import wanted_by

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter as SparkFilter

pytestmark = pytest.mark.spark  # for pyspark


def filters() -> list[tuple[list[SparkFilter], Filter]]:
    from pyspark.sql.datasource import (
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
        Not,
    )

    topic, offset, time = ("topic",), ("physicalOffset",), ("storeTimestamp",)
    return [
        ([], Filter()),
        ([IsNotNull(topic), EqualTo(topic, "a")], Filter(topics=frozenset({"a"}))),
        ([In(topic, ("a", None, "b"))], Filter(topics=frozenset({"a", "b"}))),
        ([In(topic, (None,))], Filter()),
        ([In(topic, ("a", "b")), In(topic, ("b", "c"))], Filter(topics=frozenset({"b"}))),
        ([EqualTo(topic, "a"), EqualTo(topic, "b")], Filter(topics=frozenset({"a"}))),
        ([Not(EqualTo(topic, "a"))], Filter()),
        ([EqualTo(("queueId",), 3), EqualTo(("queueOffset",), 9)], Filter(queue_id=3, queue_offset=9)),
        ([EqualTo(("tags",), "t"), EqualTo(("uniqKey",), "u")], Filter(tag="t", key="u")),
        ([GreaterThan(offset, 5), LessThanOrEqual(offset, 9)], Filter(from_offset=6, to_offset=10)),
        (
            [GreaterThanOrEqual(offset, 5), GreaterThan(offset, 2), LessThan(offset, 9), LessThan(offset, 7)],
            Filter(from_offset=5, to_offset=7),
        ),
        ([EqualTo(offset, 5)], Filter(from_offset=5, to_offset=6)),
        ([GreaterThan(time, 5), LessThan(time, 9)], Filter(since=6, until=8)),
        ([EqualTo(time, 5)], Filter(since=5, until=5)),
        ([EqualTo(("size",), 5), GreaterThan(("queueId",), 1), EqualTo(("broker",), "b")], Filter()),
    ]


@pytest.mark.parametrize("number", range(15))
def test_what_they_come_to(number: int) -> None:
    given, wanted = filters()[number]
    assert wanted_by(given) == wanted
