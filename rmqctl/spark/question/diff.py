"""`rmqctl job diff`: compare two copies of one log.

For example, a master and its slave each have a copy of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.spark.source.message_schema import KIND_DAMAGE, KIND_MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BODY_COLUMNS = ("body", "properties")
FINGERPRINT = ("size", "topic", "queueId", "queueOffset", "storeTimestamp", "bodyCrc", "damage")
BODIES = ("bodySha256", "properties")


class Limits(NamedTuple):
    """The beginning of a log, and the end of its last good record.

    `begin` and `end` are physical offsets. `begin` is None if the log is empty. `end` is None if the log has no good
    record.
    """

    begin: int | None
    end: int | None


def diff(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """Return a row for each record that is not the same in both logs.

    `a` and `b` are tables of the data source `rocketmq`, each of one store. Records with equal physicalOffset are
    compared.

    Columns: physicalOffset, difference, fields (the names of the fields that differ), a and b (the fingerprint of the
    record in each log). With `bodies`, a fingerprint also has the SHA-256 of the body, and the properties.

    The column `difference` can have the following values. missing: the record is in a, but not in b. extra: the record
    is in b, but not in a. different: the two records differ. expired-in-b, expired-in-a: the record lies before the
    beginning of the other log, because the first files of the other log expired. behind-in-b, behind-in-a: the record
    lies after the last good record of the other log.

    `diff` reads both logs to find the beginning and the end of each log. An action on the result reads both logs again.
    """
    return with_difference(unequal(a, b, bodies=bodies), limits_of(a), limits_of(b))


def limits_of(records: DataFrame) -> Limits:
    """Return the beginning of a log, and the end of its last good record.

    Each call of `limits_of` reads the whole log.
    """
    from pyspark.sql import functions as f

    end = f.when(f.col("kind") != KIND_DAMAGE, f.col("physicalOffset") + f.col("size"))
    return Limits(*records.agg(f.min("physicalOffset"), f.max(end)).collect()[0])


def unequal(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """Return the rows of `diff`, without the column `difference`.

    In contrast to `diff`, the result includes damage that only one log has.
    """
    from pyspark.sql import functions as f

    names = (*FINGERPRINT, *BODIES) if bodies else FINGERPRINT
    both = _fingerprints(a, "a", names).join(_fingerprints(b, "b", names), "physicalOffset", "full")
    in_both = f.col("a").isNotNull() & f.col("b").isNotNull()
    differing = [f.when(in_both & ~f.col(f"a.{name}").eqNullSafe(f.col(f"b.{name}")), f.lit(name)) for name in names]
    rows = both.select("physicalOffset", f.array_compact(f.array(*differing)).alias("fields"), "a", "b").where(
        ~in_both | (f.size("fields") > 0)
    )
    if bodies:
        for side in ("a", "b"):
            as_map = f.map_from_entries(f.col(side)["properties"])
            rows = rows.withColumn(side, f.col(side).withField("properties", as_map))
    return rows


def with_difference(rows: DataFrame, a: Limits, b: Limits) -> DataFrame:
    """Return the rows of `unequal`, with the column `difference`.

    Damage in only one log gets no row, because each destroyed record has a row.
    """
    from pyspark.sql import functions as f

    difference = (
        f.when(f.col("b").isNull(), _only_in("a", "b", b, "missing"))
        .when(f.col("a").isNull(), _only_in("b", "a", a, "extra"))
        .otherwise("different")
    )
    return rows.select("physicalOffset", difference.alias("difference"), "fields", "a", "b").where(
        f.col("difference").isNotNull()
    )


def _only_in(side: str, other: str, limits: Limits, inside: str) -> Column:
    """Return the value of `difference` for a record that only `side` has.

    `limits` are the limits of the log `other`. If the record lies within `limits`, the result is `inside`. If the
    record lies outside `limits`, the result begins with `expired-in-` or `behind-in-`. The result is null if the record
    is damage.
    """
    from pyspark.sql import functions as f

    behind = f.lit(f"behind-in-{other}")
    if limits.begin is None or limits.end is None:
        place = behind
    else:
        offset = f.col("physicalOffset")
        place = f.when(offset < limits.begin, f"expired-in-{other}").when(offset < limits.end, inside).otherwise(behind)
    return f.when(f.col(f"{side}.damage").isNull(), place)


def _fingerprints(records: DataFrame, side: str, names: tuple[str, ...]) -> DataFrame:
    """Return two columns: physicalOffset, and the fingerprint of each record.

    The column of the fingerprint has the name `side`. For damage, the fingerprint has the fields that can still be
    read.
    """
    from pyspark.sql import functions as f

    found = records.where(f.col("kind").isin(KIND_MESSAGE, KIND_DAMAGE))
    if "bodySha256" in names:
        as_entries = f.map_entries("properties")  # maps cannot be compared
        found = found.withColumn("bodySha256", f.sha2("body", 256)).withColumn("properties", as_entries)
    return found.select("physicalOffset", f.struct(*names).alias(side))
