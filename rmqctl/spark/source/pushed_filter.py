"""Turn the filters that Spark pushes down into a filter for messages.

rmqctl applies the cheap filters of Spark, and ignores the expensive filters. Spark applies all filters again, so rmqctl
may select too many messages. rmqctl must not leave out a wanted message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.forensics.message_filter import Filter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter as SparkFilter

_TEXTS = {"tags": "tag", "uniqKey": "key"}  # `key` also matches words of KEYS, so it leaves out fewer messages
_EQUAL = {"queueId": "queue_id", "queueOffset": "queue_offset"}
_LOW = {"storeTimestamp": "since", "physicalOffset": "from_offset"}


def wanted_by(filters: Iterable[SparkFilter]) -> Filter:
    """Return one filter that combines `filters`.

    The result selects all messages that meet all `filters`, but may select too many messages.
    """
    conditions: dict[str, Any] = {}
    for one in filters:
        for name, value in _conditions(one):
            conditions[name] = _both(name, conditions[name], value) if name in conditions else value
    return Filter(**conditions)


def _conditions(one: SparkFilter) -> list[tuple[str, Any]]:
    """Return the fields of Filter that correspond to a filter of Spark.

    Each item of the list has the name and the value of a field of Filter. The fields select all messages that Spark's
    filter selects, and may select more messages. The list is empty if no field corresponds to Spark's filter.
    """
    from pyspark.sql import datasource as spark

    column = getattr(one, "attribute", ("",))[0]
    value = getattr(one, "value", None)
    if column == "topic" and isinstance(one, spark.EqualTo | spark.In):
        topics = frozenset(
            text for text in (one.value if isinstance(one, spark.In) else (value,)) if isinstance(text, str)
        )
        return [("topics", topics)] if topics else []  # no topic is equal to null
    if isinstance(one, spark.EqualTo) and column in _TEXTS:
        return [(_TEXTS[column], value)]
    if isinstance(one, spark.EqualTo) and column in _EQUAL:
        return [(_EQUAL[column], value)]
    if column not in _LOW or not isinstance(value, int):
        return []
    conditions = []
    if isinstance(one, spark.EqualTo | spark.GreaterThan | spark.GreaterThanOrEqual):
        conditions.append((_LOW[column], value + isinstance(one, spark.GreaterThan)))
    if isinstance(one, spark.EqualTo | spark.LessThan | spark.LessThanOrEqual):
        last = value - isinstance(one, spark.LessThan)
        conditions.append(("until", last) if column == "storeTimestamp" else ("to_offset", last + 1))
    return conditions


def _both(name: str, one: Any, other: Any) -> Any:
    """Combine two conditions on the field `name` into one condition.

    The result selects all messages that meet both conditions, but may select too many messages.
    """
    if name == "topics":
        return one & other or one
    if name in ("since", "from_offset"):
        return max(one, other)
    return min(one, other) if name in ("until", "to_offset") else one
