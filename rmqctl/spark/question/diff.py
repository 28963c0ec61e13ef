"""`rmqctl job diff`: compare two copies of one log, as of a master and a slave."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmqctl.spark.question.log_records import ask, ask_at
from rmqctl.spark.scan.pieces import pieces_of
from rmqctl.spark.scan.split import MIB, SPLIT_MIB
from rmqctl.spark.source.message_schema import KIND_BLOCK, KIND_DAMAGE, KIND_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from rmqctl.spark.question.log_records import LogRecords
    from rmqctl.spark.scan.coverage import Coverage
    from rmqctl.spark.scan.pieces import Pieces

T = TypeVar("T")
PART_FIELDS = ("block", "fileNumber", "begin", "end", "messages", "digest")
PARTS_MAX = 1_000_000  # of blocks of 1 MiB; for more, the driver would need too much memory

BODY_COLUMNS = ("body", "properties")
FINGERPRINT = ("size", "topic", "queueId", "queueOffset", "storeTimestamp", "bodyCrc", "damage")
BODIES = ("bodySha256", "properties")


class Limits(NamedTuple):
    """The beginning of a log, and the end of its last good record."""

    begin: int | None  # physical offset; None: the log is empty
    end: int | None  # physical offset; None: the log has no good record


def diff(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """Return a row for each record that is not the same in both logs.

    `a` and `b` are tables of the data source `rocketmq`, each of one store. Records with equal physicalOffset are
    compared.

    Columns: physicalOffset, difference, fields (the names of the fields that differ), a and b (the fingerprint of the
    record in each log). With `bodies`, a fingerprint also has the SHA-256 of the body, and the properties.

    | difference | |
    |---|---|
    | missing | the record is in a, but not in b |
    | extra | the record is in b, but not in a |
    | different | the two records differ |
    | expired-in-b, expired-in-a | it lies before the other log, whose first files expired |
    | behind-in-b, behind-in-a | it lies after the other log's last good record |

    Both logs are read to find their beginning and end, and again by an action on the result.
    """
    return with_difference(unequal(a, b, bodies=bodies), limits_of(a), limits_of(b))


def limits_of(records: DataFrame) -> Limits:
    """Return the beginning of a log, and the end of its last good record.

    Each call reads the whole log.
    """
    from pyspark.sql import functions as f

    end = f.when(f.col("kind") != KIND_DAMAGE, f.col("physicalOffset") + f.col("size"))
    return Limits(*records.agg(f.min("physicalOffset"), f.max(end)).collect()[0])


def unequal(a: DataFrame, b: DataFrame, *, bodies: bool = False) -> DataFrame:
    """Return the rows of `diff`, without the column `difference`.

    They include damage that only one log has.
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


def ask_unequal(
    a: LogRecords, b: LogRecords, question: Callable[[DataFrame], T], *, bodies: bool
) -> tuple[T, list[Coverage]]:
    """Return the result of `question` on the rows of `unequal`, and what was read.

    The tasks first give Spark a digest of each block. Then the blocks that differ are read again, and compared record
    by record; with more than PARTS_MAX of them, both whole logs are.

    The first action of `question` must read the whole table. Raises the errors of `ask`.
    """
    blocks = [one.summarised("rmqctl-blocks", PART_FIELDS, bodies=str(bodies).lower()) for one in (a, b)]
    parts, read = ask(blocks, lambda left, right: _unlike_parts(left, right).limit(PARTS_MAX + 1).collect())

    def answer(left: DataFrame, right: DataFrame) -> T:
        return question(unequal(left, right, bodies=bodies))

    if len(parts) > PARTS_MAX:
        return ask([a, b], answer)
    pieces = [
        _pieces([part for part in parts if part["side"] == side], scan) for side, scan in zip("ab", read, strict=True)
    ]
    return ask_at([a, b], pieces, answer), read


def _unlike_parts(a: DataFrame, b: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    sides = [
        log.where(f.col("kind") == KIND_BLOCK).select(f.lit(side).alias("side"), *PART_FIELDS)
        for side, log in zip("ab", (a, b), strict=True)
    ]
    part = f.struct("side", *PART_FIELDS[1:])
    blocks = sides[0].union(sides[1]).groupBy("block").agg(f.collect_list(part).alias("parts"))
    has_no_digest = f.exists("parts", lambda one: one["digest"].isNull())
    unlike = blocks.where(has_no_digest | (_digests("a") != _digests("b")))
    return unlike.select(f.inline("parts")).drop("digest")


def _digests(side: str) -> Column:
    from pyspark.sql import functions as f

    own = f.filter("parts", lambda one: one["side"] == side)
    return f.sort_array(f.transform(own, lambda one: f.struct(one["begin"], one["end"], one["digest"])))


def _pieces(parts: Sequence[Row], read: Coverage) -> tuple[list[Pieces] | None, int]:
    """Return the pieces of one log to read again, and the number of their messages.

    Damage between files is read without pieces. The pieces are None if nothing has to be read again.
    """
    if not parts:
        return None, 0
    places: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    messages = 0
    for part in parts:
        if part["fileNumber"] >= 0:
            places[read.splits[0].root, part["fileNumber"]].append((part["begin"], part["end"]))
            messages += part["messages"]
    return pieces_of(places, read.splits, SPLIT_MIB * MIB), messages


def with_difference(rows: DataFrame, a: Limits, b: Limits) -> DataFrame:
    """Return the rows of `unequal`, with the column `difference`.

    Damage in only one log gets no row, because each destroyed record has one.
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

    It is `inside` within the `limits` of the log `other`, and begins with `expired-in-` or `behind-in-` outside. It is
    null for damage.
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
    """Return physicalOffset, and in the column `side` the fingerprint of each record.

    That of damage has the fields that can still be read.
    """
    from pyspark.sql import functions as f

    found = records.where(f.col("kind").isin(KIND_MESSAGE, KIND_DAMAGE))
    if "bodySha256" in names:
        as_entries = f.map_entries("properties")  # maps cannot be compared
        found = found.withColumn("bodySha256", f.sha2("body", 256)).withColumn("properties", as_entries)
    return found.select("physicalOffset", f.struct(*names).alias(side))
