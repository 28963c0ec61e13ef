"""`rmqctl job diff`: two copies of one log, as a master's and its slave's."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "bodyCrc", "damage")
BODY_COLUMNS = ("body", "properties")
FINGERPRINT = ("size", "topic", "queueId", "queueOffset", "storeTimestamp", "bodyCrc", "damage")
BODIES = ("bodySha256", "properties")
DIFFERENT = ("missing", "extra", "different")


def diff(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """A row for each record that is not the same in both logs (each of one store, of the data source `rocketmq`), by physicalOffset.

    Columns: physicalOffset, difference, fields (the names of those that differ), a and b: the fingerprint of each; with `bodies` a
    fingerprint has the body's SHA-256 and the properties, too. `difference`: missing: not in b. extra: not in a. different. Where one
    log begins later (its first files expired) or ends earlier (it is behind), what only the other has is no difference of what
    both cover: expired-in-b, behind-in-b, expired-in-a, behind-in-a. A log ends with its last good record.
    Reads each log twice: also for where it begins and ends.
    """
    from pyspark.sql import functions as f

    names = (*FINGERPRINT, *BODIES) if bodies else FINGERPRINT
    left, right = _fingerprints(a, "a", names), _fingerprints(b, "b", names)
    limits = _limits(a, "A").crossJoin(_limits(b, "B"))
    both = left.join(right, "physicalOffset", "full").crossJoin(f.broadcast(limits))
    in_both = f.col("a").isNotNull() & f.col("b").isNotNull()
    differing = [f.when(in_both & ~f.col(f"a.{name}").eqNullSafe(f.col(f"b.{name}")), f.lit(name)) for name in names]
    rows = both.withColumn("fields", f.array_compact(f.array(*differing))).withColumn("difference", _difference())
    return rows.where(f.col("difference").isNotNull()).select("physicalOffset", "difference", "fields", "a", "b")


def limits(records: DataFrame) -> DataFrame:
    """One row: `begin` and `end`, physical offsets of a log; null where it has no record."""
    from pyspark.sql import functions as f

    good = f.col("kind").isin("message", "blank")
    return records.agg(f.min("physicalOffset").alias("begin"), f.max(f.when(good, f.col("physicalOffset") + f.col("size"))).alias("end"))


def _limits(records: DataFrame, side: str) -> DataFrame:
    return limits(records).toDF(f"begin{side}", f"end{side}")


def _fingerprints(records: DataFrame, side: str, names: tuple[str, ...]) -> DataFrame:
    """physicalOffset, and what is there as one column; of a damaged place, too, as far as it tells."""
    from pyspark.sql import functions as f

    found = records.where(f.col("kind").isin("message", "damage"))
    if "bodySha256" in names:
        as_entries = f.map_entries("properties")
        found = found.withColumn("bodySha256", f.sha2("body", 256)).withColumn("properties", as_entries)
    return found.select("physicalOffset", f.struct(*names).alias(side))


def _difference() -> Column:
    from pyspark.sql import functions as f

    offset = f.col("physicalOffset")

    def only_in(side: str, other: str, inside: str) -> Column:
        """What only one has: damage there is none of a message; else by where the other begins and ends."""
        lower = other.lower()
        place = f.when(offset < f.col(f"begin{other}"), f"expired-in-{lower}").when(offset < f.col(f"end{other}"), inside)
        return f.when(f.col(f"{side}.damage").isNull(), place.otherwise(f"behind-in-{lower}"))

    return (
        f.when(f.col("b").isNull(), only_in("a", "B", "missing"))
        .when(f.col("a").isNull(), only_in("b", "A", "extra"))
        .when(f.size("fields") > 0, "different")
    )


def is_difference() -> Column:
    """Whether a row of `diff` is a difference of what both logs cover."""
    from pyspark.sql import functions as f

    return reduce(lambda found, one: found | (f.col("difference") == one), DIFFERENT[1:], f.col("difference") == DIFFERENT[0])
