"""`rmqctl job diff`: two copies of one log, as a master's and its slave's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.spark.source.message_schema import KIND_DAMAGE, KIND_MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BODY_COLUMNS = ("body", "properties")
FINGERPRINT = ("size", "topic", "queueId", "queueOffset", "storeTimestamp", "bodyCrc", "damage")
BODIES = ("bodySha256", "properties")


class Limits(NamedTuple):
    """Where a log begins, and ends after its last good record, physical offsets.

    None where it has none.
    """

    begin: int | None
    end: int | None


def diff(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """Return a row for each record that is not the same in both logs (each of one store, of the data source `rocketmq`), by physicalOffset.

    Columns: physicalOffset, difference, fields (the names of those that differ), a and b: the fingerprint of each; with
    `bodies` a fingerprint has the body's SHA-256 and the properties, too. `difference`: missing: not in b. extra: not
    in a. different. Where one log begins later (its first files expired) or ends earlier (it is behind), what only the
    other has is no difference of what both cover: expired-in-b, behind-in-b, expired-in-a, behind-in-a. Reads each log
    at once for its limits, and again for the rows.
    """
    return with_difference(unequal(a, b, bodies=bodies), limits_of(a), limits_of(b))


def limits_of(records: DataFrame) -> Limits:
    """Return where a log begins and ends; reads it."""
    from pyspark.sql import functions as f

    end = f.when(f.col("kind") != KIND_DAMAGE, f.col("physicalOffset") + f.col("size"))
    return Limits(*records.agg(f.min("physicalOffset"), f.max(end)).collect()[0])


def unequal(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """Return the rows of `diff` and those of damage that only one has, without `difference`."""
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
    """Return what `unequal` found, with `difference`.

    Damage that only one has is left out: what it destroyed is told of already.
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
    """Return the difference of a record that only `side` has.

    It depends on whether the `other` log, of these limits, should have the record.
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
    """Return physicalOffset, and the fingerprint of the record there as one column.

    A damaged place has one, too, as far as its bytes tell.
    """
    from pyspark.sql import functions as f

    found = records.where(f.col("kind").isin(KIND_MESSAGE, KIND_DAMAGE))
    if "bodySha256" in names:
        as_entries = f.map_entries("properties")  # maps cannot be compared
        found = found.withColumn("bodySha256", f.sha2("body", 256)).withColumn("properties", as_entries)
    return found.select("physicalOffset", f.struct(*names).alias(side))
