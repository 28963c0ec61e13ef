"""`rmqctl job lost`: find messages in the log to which no queue points.

No consumer ever receives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.format import properties
from rmqctl.format.cq_unit import PRE_BLANK_SIZE
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.spark.question.log_records import ask
from rmqctl.spark.source.message_schema import CONFIRMED, KIND_DAMAGE, KIND_MESSAGE
from rmqctl.store.config.topics import SCHEDULE_TOPIC, SYSTEM_PREFIXES, SYSTEM_TOPICS
from rmqctl.store.dispatch.light_queues import LEFT_OUT_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, Row

    from rmqctl.spark.question.log_records import LogRecords
    from rmqctl.spark.scan.coverage import Coverage

QUEUE = ("store", "topic", "queueId")
COLUMNS = (
    "broker", "store", "topic", "queueId", "queueOffset", "physicalOffset", "size", "storeTimestamp", "sysFlag",
    "properties", "damage",
)  # fmt: skip
MISSING_UNIT, DELETED_TOPIC, SUPERSEDED = "missing-unit", "deleted-topic", "superseded"


def lost(records: DataFrame, units: DataFrame, known_topics: DataFrame | None = None) -> DataFrame:
    """Count, for each queue, the messages to which no unit of the queue points.

    `records` come from the data source `rocketmq`, and `units` from `rocketmq-queues`.

    A message must have a unit in each queue to which dispatch assigns it: none for a prepared message or a rollback
    record, several for an LMQ message.

    Each row is for one queue and one value of `why`. Columns: broker, store, topic, queueId, why, messages, bytes,
    firstPhysicalOffset, lastPhysicalOffset, firstStoreTimestamp, lastStoreTimestamp.

    | why | |
    |---|---|
    | missing-unit | consumers should receive the messages (`verify` reports missing-unit or unit-mismatch) |
    | deleted-topic | `known_topics` (columns store and topic) has topics of the store, but not this one |
    | superseded | the messages were stored before their topic was deleted and created again |

    Brokers' own topics and LMQ topics are never deleted-topic.
    """
    from pyspark.sql import functions as f

    used = units.where((f.col("size") > 0) & (f.col("size") < PRE_BLANK_SIZE) & (f.col("physicalOffset") >= 0))
    reached = used.select(*QUEUE, "physicalOffset").distinct().withColumn("reached", f.lit(True))
    places = _places(records).join(reached, [*QUEUE, "physicalOffset"], "left")
    begins = f.col("reached") & (f.col("queueOffset") == 0)
    unreached = _after_begin(places.where(f.col("reached").isNull() | begins), begins).where(f.col("reached").isNull())
    why = f.when(f.col("physicalOffset") < f.col("begin"), SUPERSEDED)
    if known_topics is not None:
        unreached, deleted = _deleted(unreached, known_topics)
        why = why.when(deleted, DELETED_TOPIC)
    return (
        unreached.withColumn("why", why.otherwise(MISSING_UNIT))
        .groupBy("broker", *QUEUE, "why")
        .agg(
            f.count("*").alias("messages"),
            f.sum("size").alias("bytes"),
            f.min("physicalOffset").alias("firstPhysicalOffset"),
            f.max("physicalOffset").alias("lastPhysicalOffset"),
            f.min("storeTimestamp").alias("firstStoreTimestamp"),
            f.max("storeTimestamp").alias("lastStoreTimestamp"),
        )
    )


def ask_lost(
    records: LogRecords, units_of: Callable[[list[tuple[str, str, int]]], DataFrame], known_topics: DataFrame
) -> tuple[list[Row], Coverage]:
    """Return the rows of `lost`, and what was read.

    The tasks compare the messages with the queues, and give Spark only those that their queues do not confirm. Spark
    compares these with all units of their queues. `units_of` returns the units of some queues (store, topic, queueId),
    or of more queues. Raises the errors of `ask`.
    """

    def unconfirmed_in(table: DataFrame) -> tuple[DataFrame, list[Row]]:
        kept = table.persist()
        queues = _places(kept.where(_is_unconfirmed())).select(*QUEUE).distinct()
        return kept, queues.collect()

    unconfirmed = records.summarised("rmqctl-unconfirmed", (*COLUMNS, "detail"))
    (table, queues), read = ask([unconfirmed], unconfirmed_in)
    if not queues:
        return [], read[0]
    names = [(store, topic, queue_id) for store, topic, queue_id in queues]
    asked = records.spark.createDataFrame(names, "store string, topic string, queueId int")
    found = lost(_in_queues(table, asked), units_of(names), known_topics).collect()
    table.unpersist()
    return found, read[0]


def _is_unconfirmed() -> Column:
    from pyspark.sql import functions as f

    return (f.col("kind") != KIND_MESSAGE) | f.col("detail").isNull()


def _in_queues(records: DataFrame, queues: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    confirmed = records.where((f.col("kind") == KIND_MESSAGE) & (f.col("detail") == CONFIRMED))
    of_queues = confirmed.join(f.broadcast(queues), [*QUEUE], "left_semi")
    return records.where(_is_unconfirmed()).unionByName(of_queues)


def _places(records: DataFrame) -> DataFrame:
    """Return a row for each place in a queue where a message must have a unit.

    Damaged messages are included if the topic can be read and PHYSICALOFFSET is not wrong.
    """
    from pyspark.sql import functions as f

    in_its_place = (f.col("damage") != "bad-physical-offset") & f.col("topic").isNotNull()
    kind = f.col("sysFlag").bitwiseAND(TRANSACTION_MASK)
    messages = records.where((f.col("kind") == KIND_MESSAGE) | ((f.col("kind") == KIND_DAMAGE) & in_its_place)).where(
        ~kind.isin(int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))
    )
    own = f.struct("topic", "queueId", "queueOffset")
    place = f.explode(f.concat(f.array(own), _light_places())).alias("place")
    rest = ("broker", "store", "physicalOffset", "size", "storeTimestamp")
    return messages.select(*rest, place).select(*rest, "place.*")


def _light_places() -> Column:
    """Return the places (topic, queueId, queueOffset) of a message in LMQs.

    INNER_MULTI_DISPATCH has the names of the LMQs, INNER_MULTI_QUEUE_OFFSET the queue offsets. If their numbers differ,
    there is no place. A place with an invalid name or offset is skipped.

    Topics that brokers of 5.2 and later exclude from LMQs have none: a copy of a message there may have the LMQ offsets
    of the original (`rmqctl.store.dispatch.light_queues`).
    """
    from pyspark.sql import functions as f

    def words(name: str) -> Column:
        text = f.coalesce(f.col("properties")[name], f.lit(""))
        return f.split(
            f.regexp_replace(text, f"{properties.LMQ_SEPARATOR}+$", ""), properties.LMQ_SEPARATOR
        )  # as Java splits

    names, offsets = words(properties.INNER_MULTI_DISPATCH), words(properties.INNER_MULTI_QUEUE_OFFSET)

    def place(pair: Column) -> Column:
        name, offset = pair["0"], pair["1"]
        queue_id = f.when(f.startswith(name, f.lit(properties.LMQ_PREFIX)), 0).otherwise(f.col("queueId"))
        return f.struct(name.alias("topic"), queue_id.alias("queueId"), offset.try_cast("bigint").alias("queueOffset"))

    def is_place(pair: Column) -> Column:
        return (pair["0"] != "") & ~f.contains(pair["0"], f.lit("/")) & pair["1"].rlike("^[0-9]{1,18}$")

    left_out = [f.startswith(f.col("topic"), f.lit(prefix)) for prefix in LEFT_OUT_PREFIXES]
    is_asked = (f.size(names) == f.size(offsets)) & ~(left_out[0] | left_out[1] | (f.col("topic") == SCHEDULE_TOPIC))
    pairs = f.when(is_asked, f.arrays_zip(names, offsets)).otherwise(f.array())
    return f.transform(f.filter(pairs, is_place), place)


def _after_begin(places: DataFrame, begins: Column) -> DataFrame:
    """Add a column with the physical offset of the last message at queue offset 0.

    If a topic is deleted and created again, its queues begin again at 0. `begins` selects the messages of a queue that
    have queue offset 0 and a unit. The column `begin` is null if there is none.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    begin = f.max(f.when(begins, f.col("physicalOffset"))).over(Window.partitionBy(*QUEUE))
    return places.withColumn("begin", begin)


def _deleted(places: DataFrame, known_topics: DataFrame) -> tuple[DataFrame, Column]:
    """Return the places, and a column that says whether the topic was deleted.

    It is true if `known_topics` has topics of the store, but not that of the place. Brokers' own topics and LMQ topics
    never count as deleted.
    """
    from pyspark.sql import functions as f

    stores = known_topics.select("store").distinct().withColumn("storeKnown", f.lit(True))
    topics = known_topics.select("store", "topic").distinct().withColumn("topicKnown", f.lit(True))
    joined = places.join(f.broadcast(stores), "store", "left").join(f.broadcast(topics), ["store", "topic"], "left")
    own = f.col("topic").isin(*sorted(SYSTEM_TOPICS))
    for prefix in (*SYSTEM_PREFIXES, properties.LMQ_PREFIX):
        own |= f.startswith(f.col("topic"), f.lit(prefix))
    return joined, f.col("storeKnown") & f.col("topicKnown").isNull() & ~own
