"""`rmqctl job duplicates`: find messages that were stored more than once.

A producer that repeats a send after a timeout may store a message twice.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from rmqctl.spark.question.log_records import ask, ask_at
from rmqctl.spark.scan.pieces import pieces_of
from rmqctl.spark.source.message_schema import KIND_SEND, messages_of
from rmqctl.spark.source.send_rows import BROKERS_OWN_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, Row

    from rmqctl.spark.question.log_records import LogRecords
    from rmqctl.spark.scan.coverage import Coverage

COLUMNS = (
    "broker", "store", "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "uniqKey", "bodyCrc",
    "bodyLength",
)  # fmt: skip
SEND_FIELDS = ("storeNumber", "fileNumber", "position", "hash")
PLACES_MAX = 200_000  # more are read faster with the whole log
TASK_SIZE = 2000  # places in bytes of `pieces_of`, where each place counts as one byte

T = TypeVar("T")


def duplicates(records: DataFrame, *, all_topics: bool = False) -> DataFrame:
    """Return a row for each message that was stored more than once.

    Copies of one message have the same topic, UNIQ_KEY and body (length and checksum).

    Columns: topic, uniqKey, bodyCrc, bodyLength, count, places. `places` has the broker, store, queueId, queueOffset,
    physicalOffset and storeTimestamp of each copy, the one that was stored first at the front.

    Brokers of 4.9 and later append the properties of a batch to each of its messages, so different messages can have
    equal UNIQ_KEYs. Copies are not reported if all were stored in one queue in one millisecond.

    Without `all_topics`, the brokers' own topics are not searched.
    """
    from pyspark.sql import functions as f

    messages = messages_of(records).where(f.col("uniqKey").isNotNull())
    if not all_topics:
        messages = messages.where(~f.col("topic").rlike(BROKERS_OWN_TOPICS))
    place = f.struct("storeTimestamp", "broker", "store", "queueId", "queueOffset", "physicalOffset")
    found = messages.groupBy("topic", "uniqKey", "bodyCrc", "bodyLength").agg(
        f.count("*").alias("count"), f.sort_array(f.collect_list(place)).alias("places")
    )
    stored = f.transform("places", lambda one: f.struct(one["store"], one["queueId"], one["storeTimestamp"]))
    return found.where((f.col("count") > 1) & (f.size(f.array_distinct(stored)) > 1))


def ask_duplicates(records: LogRecords, question: Callable[[DataFrame], T], *, all_topics: bool) -> tuple[T, Coverage]:
    """Return the result of `question` on the rows of `duplicates`, and what was read.

    The tasks first give Spark a hash of each message. Then the messages with equal hashes are read again, and compared
    by their texts; with more than PLACES_MAX of them, the whole log is read again.

    The action of `question` must read the whole table. Raises the errors of `ask`.
    """
    sends = records.summarised("rmqctl-sends", SEND_FIELDS, allTopics=str(all_topics).lower())
    places, read = ask([sends], lambda table: _with_equal_hashes(table).limit(PLACES_MAX + 1).collect())

    def answer(table: DataFrame) -> T:
        return question(duplicates(table, all_topics=all_topics))

    if len(places) > PLACES_MAX:
        found, read = ask([records], answer)
        return found, read[0]
    pieces = pieces_of(_by_file(places, read[0], list(dict.fromkeys(records.paths))), read[0].splits, TASK_SIZE)
    return ask_at([records], [(pieces or None, len(places))], answer), read[0]


def _with_equal_hashes(sends: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    copies = f.count("*").over(Window.partitionBy("hash"))
    counted = sends.where(f.col("kind") == KIND_SEND).select(*SEND_FIELDS, copies.alias("copies"))
    return counted.where(f.col("copies") > 1).drop("hash", "copies")


def _by_file(
    places: Sequence[Row], read: Coverage, roots: Sequence[str]
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    begins = {(split.root, split.file): split.file_from_offset for split in read.splits}
    found = defaultdict(list)
    for store, file, position in places:
        offset = begins[roots[store], file] + position
        found[roots[store], file].append((offset, offset + 1))
    return found


def first(found: DataFrame, count: int) -> DataFrame:
    """Return the first `count` rows of `duplicates`, in the order that users see.

    Spark reads the whole log for them, but the driver gets no others.
    """
    from pyspark.sql import functions as f

    return found.orderBy("topic", f.col("places")[0]["storeTimestamp"], "uniqKey", "bodyCrc").limit(count)
