"""The physical offsets and store times that a query needs, by Spark's plan.

Spark's optimizer moves the conditions of a query to the tables that they are about. A condition counts only if Spark
has moved it directly above its table, and if it compares a column with a constant.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from rmqctl.spark.source.bounded_splits import NO_BOUNDS, Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

NAMED = re.compile(r"\b(physicalOffset|storeTimestamp|storeTime)\b", re.IGNORECASE)
US_PER_MS = 1000
_TABLE = "LogicalRDD"  # what `empty_table` is in a plan
_PASSED = ("Filter", "Project")  # a condition above these is still about each row of the table
_NUMBERS = ("physicalOffset", "storeTimestamp")
_NAMES = {name.lower(): name for name in (*_NUMBERS, "storeTime")}  # Spark keeps the case that the query has
_TURNED = {
    "GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual", "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual", "EqualTo": "EqualTo",
}  # fmt: skip


class _Node(NamedTuple):
    kind: str
    fields: dict[str, Any]
    children: list[_Node]


def bounds_of(frame: DataFrame) -> Bounds:
    """Return the bounds of the rows that a query needs from its tables.

    In the query, each table of records must be an `empty_table`. The bounds contain what all tables need together. They
    are NO_BOUNDS if a table is read without a condition, or if the plan has a subquery, whose tables are not seen.
    Raises the errors of Spark for a query that Spark refuses.
    """
    text = frame._jdf.queryExecution().optimizedPlan().toJSON()
    if re.search(r'"class":"[^"]*(Subquery|\.Exists|\.ListQuery)', text):
        return NO_BOUNDS
    zone = str(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    found = [_conjunction(conditions, zone) for conditions in _tables(_tree(iter(json.loads(text))), [])]
    return Bounds(*(_hull(values, low=number % 2 == 0) for number, values in enumerate(zip(*found, strict=True))))


def _hull(values: tuple[int | None, ...], *, low: bool) -> int | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return min(known) if low else max(known)


def _tree(nodes: Iterator[dict[str, Any]]) -> _Node:
    # in the list, each node is followed by its children, as Spark writes trees
    fields = next(nodes)
    children = [_tree(nodes) for _ in range(fields["num-children"])]
    return _Node(fields["class"].rpartition(".")[2], fields, children)


def _tables(node: _Node, above: list[_Node]) -> Iterator[list[_Node]]:
    """Yield the conditions of each table; `above` are those on all rows of `node`."""
    if node.kind == _TABLE:
        own = {_identity(_tree(iter(column))) for column in node.fields["output"]}
        yield [part for part in above if _identity(_column_of(part)) in own]
        return
    if node.kind == "Filter":
        above = above + list(_parts(_tree(iter(node.fields["condition"]))))
    for child in node.children:
        yield from _tables(child, above if node.kind in _PASSED else [])


def _parts(condition: _Node) -> Iterator[_Node]:
    if condition.kind == "And":
        for child in condition.children:
            yield from _parts(child)
    else:
        yield condition


def _column_of(condition: _Node) -> _Node | None:
    found = [child for child in condition.children if child.kind == "AttributeReference"]
    others = [child for child in condition.children if child.kind == "Literal"]
    return found[0] if len(found) == 1 and len(others) == len(condition.children) - 1 else None


def _identity(column: _Node | None) -> str:
    """Return what is equal for two uses of one column of one table."""
    return "" if column is None else json.dumps(column.fields["exprId"], sort_keys=True)


def _conjunction(conditions: Iterable[_Node], zone: str) -> Bounds:
    found = NO_BOUNDS
    for one in conditions:
        column = _column_of(one)
        if column is None or one.kind not in (*_TURNED, "In"):
            continue
        if one.kind == "In" and one.children[0].kind == "Literal":  # constant IN (column, ...)
            continue
        turned = one.kind in _TURNED and one.children[0].kind == "Literal"
        kind = _TURNED[one.kind] if turned else one.kind
        name = _NAMES.get(column.fields["name"].lower(), "")
        values = [_range(name, child.fields, zone) for child in one.children if child.kind == "Literal"]
        if not name or not values or None in values:
            continue
        known = [value for value in values if value is not None]
        low = min(value[0] for value in known) + (kind == "GreaterThan" and name in _NUMBERS)
        high = max(value[1] for value in known) - (kind == "LessThan" and name in _NUMBERS)
        found = found.within(
            of_offsets=name == "physicalOffset",
            low=None if kind.startswith("Less") else low,
            high=None if kind.startswith("Greater") else high,
        )
    return found


def _range(name: str, literal: dict[str, Any], zone: str) -> tuple[int, int] | None:
    """Return the least and the greatest number that a constant can mean.

    Times are in ms since 1970. None if the constant is null or of another type.
    """
    value, kind = literal.get("value"), literal.get("dataType")
    if name in _NUMBERS and kind == "long" and re.fullmatch(r"-?\d+", str(value)):
        return int(str(value)), int(str(value))
    if name != "storeTime" or kind != "timestamp" or value is None:
        return None
    try:  # in the session's time zone, where an hour may exist twice
        moments = [datetime.fromisoformat(str(value)).replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1)]
        times = [moment.timestamp() * US_PER_MS for moment in moments]
    except (ValueError, KeyError, OverflowError):  # a year or a zone that Python does not know
        return None
    return int(min(times) // 1) - 1, int(max(times) // 1) + 1
