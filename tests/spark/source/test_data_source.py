"""Stores as Spark's tables, by a real Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from rmqctl.errors import Unreadable
from rmqctl.forensics.message_filter import Filter
from rmqctl.spark.question.proof import with_coverage
from rmqctl.spark.source import data_source
from rmqctl.spark.source.data_source import PUSHDOWN, formats, register, wanted_by
from rmqctl.spark.source.message_source import splits_to_json
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import tree_hash, unpack
from tests.support.log_maker import Log, Record
from tests.support.source_rows import as_dump, dumped, in_order, splits_before_a_record_in_a_body

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter as SparkFilter
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
NAMES = ("497-lmq", "533-basic")


@pytest.fixture(autouse=True)
def _sources_are_known(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("brokers")
    return {name: unpack(name, folder / name) for name in NAMES}


def test_two_stores(spark: SparkSession, stores: dict[str, Path]) -> None:
    before = [tree_hash(root) for root in stores.values()]
    table = spark.read.format("rocketmq").load([str(root) for root in stores.values()])
    rows: list[dict[str, Any]] = [row.asDict() for row in table.collect()]
    for name, root in stores.items():
        shown = [as_dump(row) for row in rows if row["broker"] == name and row["kind"] == "message"]
        for row in shown:
            row["body"] = bytes(row["body"])
        wanted = [row | {"properties": dict(row["properties"])} for row in dumped(root)]
        assert in_order(shown) == wanted
    assert [tree_hash(root) for root in stores.values()] == before


def test_a_glob_and_chosen_columns(spark: SparkSession, stores: dict[str, Path]) -> None:
    pattern = str(stores["533-basic"].parent.parent / "*" / "store")
    table = spark.read.format("rocketmq").option("columns", "broker,topic").load(pattern)
    assert table.columns == ["broker", "topic"]
    assert {row["broker"] for row in table.distinct().collect()} == set(NAMES)


def test_a_schema_chooses_columns(spark: SparkSession, stores: dict[str, Path]) -> None:
    table = spark.read.format("rocketmq").schema("topic string, size bigint").load(str(stores["533-basic"]))
    with closing(ReadOnlyStore(stores["533-basic"])) as store:
        assert table.agg({"size": "sum"}).collect()[0][0] == store.commit_log.end()[0]


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    register(spark)
    yield
    spark.conf.set(PUSHDOWN, "false")
    register(spark)


@pytest.mark.parametrize(
    "condition",
    [
        "topic = 'OrderPaid'",
        "topic in ('OrderPaid', 'stock_change') and queueId = 1",
        "physicalOffset >= 65536 and physicalOffset < 100000",
        "physicalOffset > 131071",
        "storeTimestamp > 1795252553900 and kind = 'message'",
        "tags = 'TagA' and queueOffset = 3",
        "uniqKey is not null and keys = 'order-1'",
        "topic = 'OrderPaid' and topic = 'stock_change'",
        "kind = 'blank'",
    ],
)
def test_filters_pushed_down(
    condition: str, spark: SparkSession, stores: dict[str, Path], pushdown: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table is used once here: then also a Spark that mixes the filters of queries gives right answers."""
    root = str(stores["533-basic"])
    found = []
    for filtering in (False, True):
        monkeypatch.setattr(data_source, "keeps_filters_apart", lambda value=filtering: value)
        register(spark)
        found.append(spark.read.format("rocketmq").load(root).where(condition).orderBy("physicalOffset").collect())
    assert found[0] == found[1]


def test_queries_of_one_table_keep_their_filters_apart(
    spark: SparkSession, stores: dict[str, Path], pushdown: None
) -> None:
    table = spark.read.format("rocketmq").load(str(stores["533-basic"]))
    paid, changed = table.where("topic = 'OrderPaid'"), table.where("topic = 'stock_change'")
    counts = [one.count() for one in (table, paid, table, paid.union(changed), table)]
    assert counts == [303, 147, 303, 147 + 54, 303]


def test_spark_finds_all_formats_by_itself(spark: SparkSession, stores: dict[str, Path]) -> None:
    other = spark.newSession()  # in which nothing is registered
    for name in formats():
        package = import_module(f"pyspark_{name.replace('-', '_')}")
        assert package.DefaultSource.name() == name
        table, wanted = (session.read.format(name).load(str(stores["533-basic"])) for session in (other, spark))
        assert sorted(map(str, table.collect())) == sorted(map(str, wanted.collect()))


def test_options_of_a_batch_and_of_a_stream(spark: SparkSession, stores: dict[str, Path], tmp_path: Path) -> None:
    root = str(stores["533-basic"])
    options = {"topics": "OrderPaid", "since": "2026-11-21T09:15:53.800Z", "until": "1795252553950"}
    options |= {"fromOffset": "1000", "toOffset": "120000", "columns": "topic,physicalOffset,bornTimestamp,bornTime"}
    table = spark.read.format("rocketmq").options(**options).load(root)
    rows = table.withColumn("ms", f.unix_millis("bornTime")).collect()
    wanted = (
        spark.read.format("rocketmq")
        .load(root)
        .where(
            "topic = 'OrderPaid' AND storeTimestamp BETWEEN 1795252553800 AND 1795252553950 "
            "AND physicalOffset BETWEEN 1000 AND 119999"
        )
    )
    assert offsets_of(rows) == offsets_of(wanted.collect()) != []
    assert all(row["ms"] == row["bornTimestamp"] for row in rows)
    places = {name: json.dumps({root: at}) for name, at in (("startingOffset", 1000), ("endingOffset", 120_000))}
    reader = spark.readStream.format("rocketmq").options(topics="OrderPaid", failOnDataLoss="false", **places)
    stream = reader.load(root).select("physicalOffset").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    stream.start(str(tmp_path / "out")).awaitTermination()
    asked = spark.read.format("rocketmq").options(topics="OrderPaid", fromOffset="1000", toOffset="120001").load(root)
    assert offsets_of(spark.read.parquet(str(tmp_path / "out")).collect()) == offsets_of(asked.collect()) != []


def offsets_of(rows: list[Any]) -> list[int]:
    return sorted(row["physicalOffset"] for row in rows)


def test_an_error_ends_in_one_line_with_little_above_it(spark: SparkSession, stores: dict[str, Path]) -> None:
    store = str(stores["533-basic"])
    split = [store, "/none", 0, 0, 1000, "aa00", 0, 1000, False]
    cases = {
        "/none: no such folder": ({}, "/none"),
        "the source has no option topic .did you mean topics": ({"topic": "orders"}, store),
        "/none: an executor finds there": ({"splits": json.dumps([split])}, store),
    }
    for what, (options, path) in cases.items():
        table = spark.read.format("rocketmq").options(**options).load(path)
        with pytest.raises(PySparkException, match=what) as raised:
            table.count()
        text, _, _ = str(raised.value).replace("SQLSTATE: 38000", "").partition("JVM stacktrace:")
        lines = text.strip().splitlines()
        assert re.match(rf"rmqctl\.errors\.\w+: .*{what}", lines[-1]), text
        assert len(lines) <= 8, text


def test_tables_and_views_of_sql(spark: SparkSession, stores: dict[str, Path]) -> None:
    root, count = stores["533-basic"], "SELECT count(*) FROM {} WHERE kind = 'message'"
    spark.sql(f"CREATE TEMPORARY VIEW in_session USING rocketmq OPTIONS (path '{root}')")
    spark.sql("CREATE TABLE records USING rocketmq")
    spark.sql(f"CREATE VIEW of_broker AS SELECT * FROM records WITH (path '{root}')")
    try:
        names = ("in_session", "of_broker", f"records WITH (path '{root}')")
        assert [spark.sql(count.format(name)).collect()[0][0] for name in names] == [300, 300, 300]
    finally:
        for what in ("VIEW in_session", "VIEW of_broker", "TABLE records"):
            spark.sql(f"DROP {what}")


def test_proof_of_one_action(spark: SparkSession, stores: dict[str, Path]) -> None:
    table = spark.read.format("rocketmq").option("ranges", "true").load([str(root) for root in stores.values()])
    messages, proof = with_coverage(table)
    counted = {row["kind"]: row["count"] for row in messages.groupBy("kind").count().collect()}
    assert counted["message"] == sum(len(dumped(root)) for root in stores.values())
    assert "range" not in counted
    proof.check()


def test_proof_of_an_action_that_reads_nothing(spark: SparkSession, stores: dict[str, Path]) -> None:
    table = spark.read.format("rocketmq").option("ranges", "true").load(str(stores["533-basic"]))
    messages, proof = with_coverage(table)
    assert messages.where("1 = 0").count() == 0
    with pytest.raises(Unreadable):
        proof.check()


def test_splits_that_do_not_join_are_read_as_one(spark: SparkSession, stores: dict[str, Path], tmp_path: Path) -> None:
    splits = splits_before_a_record_in_a_body(tmp_path)
    reader = spark.read.format("rocketmq").option("ranges", "true")
    messages, proof = with_coverage(reader.option("splits", splits_to_json(splits)).load(str(tmp_path)))
    assert messages.where("kind = 'message'").count() == 4
    with pytest.raises(Unreadable, match=r"did not begin where the one before it ended \(read 2 other splits"):
        proof.check()
    messages, proof = with_coverage(
        reader.option("splits", splits_to_json(proof.coverage().splits)).load(str(tmp_path))
    )
    assert messages.where("kind = 'message'").count() == 3
    proof.check()


def test_queues_and_index(spark: SparkSession, stores: dict[str, Path]) -> None:
    roots = [str(root) for root in stores.values()]
    units = spark.read.format("rocketmq-queues").load(roots)
    messages = (
        spark.read.format("rocketmq").option("columns", "store,topic,queueId,physicalOffset,tagsCode").load(roots)
    )
    joined = units.join(messages, ["store", "topic", "queueId", "physicalOffset", "tagsCode"])
    assert joined.count() == units.where("topic not like '%LMQ%'").count() > 0
    entries = spark.read.format("rocketmq-index").load(roots)
    assert (
        entries.join(
            messages, (entries.store == messages.store) & (entries.phyOffset == messages.physicalOffset)
        ).count()
        == entries.count()
    )


def test_a_stream_that_is_begun_again_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(tmp_path / "store")
    written = [log.append(Record(queue_offset=number)) for number in range(50)]
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def begin(**trigger: Any) -> StreamingQuery:
        reader = spark.readStream.format("rocketmq").option("columns", "kind,physicalOffset,topic")
        table = reader.option("maxBytesPerTrigger", "1k").load(str(log.root))
        messages = table.where("kind = 'message'").drop("kind")
        return (
            messages.writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .start(out)
        )

    query = begin(processingTime="0 seconds")
    query.processAllAvailable()
    written += [log.append(Record(queue_offset=number)) for number in range(50, 90)]
    query.processAllAvailable()
    query.stop()
    written += [log.append(Record(queue_offset=number)) for number in range(90, 120)]
    torn = log.append(Record(body=b"z" * 500), part=0.6)
    query = begin(availableNow=True)
    query.awaitTermination()
    assert [one["numInputRows"] > 0 for one in query.recentProgress].count(True) > 2
    read = sorted(row["physicalOffset"] for row in spark.read.parquet(out).collect())
    assert read == written
    assert torn not in read


def test_planning_does_without_the_compiler_of_kernels(stores: dict[str, Path]) -> None:
    """Spark plans each query in processes of its own: numba would be most of what they do."""
    code = f"""
import sys
from rmqctl.spark.source import data_source
from rmqctl.spark.source.message_source import GroupSource, MessageSource
for source in (GroupSource, MessageSource, data_source.QueueSource, data_source.IndexSource):
    assert source({{"path": {str(stores["497-lmq"])!r}}}, ["store"]).tasks()
sys.exit("numba" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
