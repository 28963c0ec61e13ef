"""`rmqctl job sql`: answers, and what is no question."""

from __future__ import annotations

import base64
import csv
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.cli.job.job_run import JobRun
from rmqctl.spark.question import sql
from rmqctl.spark.question.log_records import LogRecords
from rmqctl.spark.question.sql import columns_of, division_of, needed
from rmqctl.spark.source.message_schema import MESSAGE_COLUMNS
from tests.conftest import Rmqctl
from tests.spark.question.conftest import dumped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]


def test_an_aggregate(golden_stores: dict[str, Path], document: Callable[..., Row]) -> None:
    root = golden_stores["broker-497"]
    found = document(
        "sql", "SELECT topic, count(*) AS n, sum(size) AS s FROM messages GROUP BY topic ORDER BY topic", root
    )
    messages = dumped(root)
    topics = sorted({row["topic"] for row in messages})
    sizes = [[row["size"] for row in messages if row["topic"] == topic] for topic in topics]
    assert found["columns"] == ["topic", "n", "s"]
    assert found["rows"] == [
        {"topic": topic, "n": len(one), "s": sum(one)} for topic, one in zip(topics, sizes, strict=True)
    ]
    assert found["scanned"]["messages"] == len(messages)
    assert found["code"] == 0


def test_rows_as_they_are(golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    root = golden_stores["533-basic"]
    rows = rmqctl("job", "sql", "SELECT * FROM messages ORDER BY physicalOffset LIMIT 3", root, "-o", "jsonl").rows()
    for row, wanted in zip(rows, dumped(root, "base64")[:3], strict=True):
        assert {key: row[key] for key in wanted if key in row} == {key: wanted[key] for key in wanted if key in row}
        assert base64.b64decode(row["body"]) == base64.b64decode(wanted["body"])


def test_messages_and_damage_together(damaged_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    root = damaged_stores["471-basic--body-flip-first-abnormal"]
    query = (
        "SELECT d.damage, count(m.size) AS before FROM damage d, messages m WHERE m.physicalOffset < "
        "d.physicalOffset GROUP BY d.damage"
    )
    result = rmqctl("job", "sql", query, root, "-o", "jsonl")
    damage = next(row for row in rmqctl("dump", root, "--damaged", "-o", "jsonl").rows() if "damage" in row)
    before = sum(row["physicalOffset"] < damage["physicalOffset"] for row in dumped(root))
    assert result.rows() == [{"damage": "bad-body-crc", "before": before}]
    assert result.code == 1


def test_no_view_at_all(golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    result = rmqctl(
        "job",
        "sql",
        "SELECT date'2026-11-21' AS d, timestamp'2026-11-21 09:15:16.848Z' AS t, 1.50 AS x",
        golden_stores["533-basic"],
        "-o",
        "jsonl",
    )
    assert result.rows() == [{"d": "2026-11-21", "t": "2026-11-21T09:15:16.848Z", "x": "1.50"}]
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selec topic from messages", "Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)"),
        ("select topic\nfrom messages whree x", "(line 2,"),
        ("select nope from messages", "`nope` cannot be resolved"),
        ("select kind from messages", "(`rmqctl job sql --help` lists the columns of each view)"),
        ("select m.topics from messages m", "(did you mean topic?)"),
        ("select stortimestamp from messages where topic = 'x'", "(did you mean storeTimestamp?)"),
        ("select\nnope from messages", "line 2 pos 0 ("),
        (
            "select m.topic, q.topic from messages m join queues q using (physicalOffset)",
            "two columns of the result have the name topic (AS ",
        ),
        ("select * from nowhere", "`nowhere` cannot be found"),
        ("select * from queue", "(the views are messages, damage, queues and index; "),
        ("select 1/0", "Division by zero"),
        ("drop view messages", "(QUERY must be a SELECT, in the syntax of Spark SQL)"),
        ("create table t as select * from messages", "Syntax error"),
        ("insert overwrite directory '/tmp/x' using csv select 1", "Syntax error"),
        ("with x as (select 1) insert into t select * from x", "Syntax error"),
        ("select 1) select 2 --", "Syntax error"),
        ("", "Syntax error"),
    ],
)
def test_what_is_no_question(query: str, said: str, golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "sql", query, golden_stores["533-basic"])
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT Topic, count(*) FROM messages GROUP BY topic", ["topic"]),
        ("select m.`queueId`, properties['x'] from messages m", ["queueId", "properties"]),
        ("select count( * ) from messages", []),
        ("select * from messages", list(MESSAGE_COLUMNS)),
        ("select m.* from messages m", list(MESSAGE_COLUMNS)),
        ("from messages", list(MESSAGE_COLUMNS)),
        ("from messages |> select topic", list(MESSAGE_COLUMNS)),
        ("select 1 from (table messages)", list(MESSAGE_COLUMNS)),
        ("select topic from messages natural join damage", list(MESSAGE_COLUMNS)),
    ],
)
def test_only_the_columns_that_a_query_names_are_read(query: str, columns: list[str]) -> None:
    assert columns_of(query) == columns


@pytest.mark.parametrize(
    ("query", "rows", "passes"),
    [
        ("SELECT count(*) AS n FROM messages", [{"n": 300}], 1),
        ("SELECT count(*) AS n FROM messages a JOIN messages b USING (physicalOffset)", [{"n": 300}], 1),
        ("SELECT count(DISTINCT d.path) AS n FROM messages m LEFT JOIN damage d USING (physicalOffset)", [{"n": 0}], 1),
        ("SELECT physicalOffset AS at FROM messages WHERE abs(physicalOffset) = 0", [{"at": 0}], 1),
        ("SELECT 1 AS x FROM messages LIMIT 1", [{"x": 1}], 2),
        ("SELECT 1 AS x FROM messages WHERE false", [], 2),
    ],
)
def test_the_log_is_read_once_if_the_query_needs_all_of_it(
    query: str,
    rows: list[Row],
    passes: int,
    golden_stores: dict[str, Path],
    document: Callable[..., Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = []
    groups = JobRun.groups

    def counted(*asked: Any) -> LogRecords:
        before.append(asked)
        return groups(*asked)

    monkeypatch.setattr(JobRun, "groups", counted)
    found = document("sql", query, golden_stores["533-basic"])
    assert found["rows"] == rows
    assert found["scanned"]["messages"] == 300
    assert sum(not columns for _, columns, _ in before) == passes - 1


@pytest.mark.parametrize(
    ("query", "division"),
    [
        ("SELECT count(*) FROM messages", "broker"),
        ("SELECT store, count(*) FROM messages GROUP BY store", "broker"),
        ("SELECT topic, store FROM messages", "topic"),
        ("SELECT broker FROM messages WHERE queueId = 1", "queue"),
        ("SELECT topic, queueId FROM messages", "queue"),
        ("SELECT topic, size FROM messages", None),
        ("SELECT * FROM messages", None),
        ("SELECT topic FROM damage", None),
        ("SELECT m.topic FROM messages m JOIN damage d USING (topic)", None),
    ],
)
def test_tasks_count_messages_if_a_query_needs_no_more(query: str, division: str | None) -> None:
    assert division_of(query, columns_of(query)) == division


@pytest.mark.parametrize(
    ("query", "copies"),
    [
        ("SELECT topic FROM messages", 4096),
        ("SELECT topic FROM messages", 7),
        ("SELECT store, topic, queueId, count(*) AS n FROM messages GROUP BY ALL", 7),
        ("SELECT DISTINCT topic FROM messages WHERE topic <> 'TopicA'", 7),
        ("SELECT topic, queueId FROM messages WHERE queueId % 2 = 1", 7),
        ("SELECT count(a.topic) AS n FROM messages a JOIN (SELECT DISTINCT topic FROM messages) b USING (topic)", 7),
    ],
)
def test_counted_messages_give_the_same_answer(
    query: str,
    copies: int,
    damaged_stores: dict[str, Path],
    golden_stores: dict[str, Path],
    document: Callable[..., Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one step or in many; a comment that names another column lets the tasks send each message."""
    monkeypatch.setattr(sql, "COPIES", copies)
    roots = [*list(damaged_stores.values())[::8], golden_stores["broker-497"], golden_stores["471-basic"]]
    counted, each = (
        document("sql", query + comment, *roots, "--limit", 1_000_000) for comment in ("", " -- physicalOffset")
    )
    assert sorted(map(repr, counted.pop("rows"))) == sorted(map(repr, each.pop("rows"))) != []
    assert counted == each


def test_a_limit_of_rows(golden_stores: dict[str, Path], document: Callable[..., Row], rmqctl: Rmqctl) -> None:
    root = golden_stores["533-basic"]
    query = "SELECT physicalOffset FROM messages ORDER BY physicalOffset"
    found = rmqctl("job", "sql", query, root, "--limit", 2, "-o", "json")
    rows = document("sql", query, root, "--limit", 300)["rows"]
    assert len(rows) == 300
    assert found.document()["rows"] == rows[:2]
    assert found.document()["scanned"]["messages"] == 300
    assert found.err.startswith("the answer has more than 2 rows; a higher --limit prints more")
    assert "more than" not in rmqctl("job", "sql", "SELECT 1 AS x", root, "--limit", 1).err


PRUNED: dict[str, Callable[[Row, Row, Row], bool]] = {
    "physicalOffset >= {low[physicalOffset]} AND {high[physicalOffset]} > physicalOffset": lambda row, low, high: (
        low["physicalOffset"] <= row["physicalOffset"] < high["physicalOffset"]
    ),
    "physicalOffset IN ({low[physicalOffset]}, {high[physicalOffset]})": lambda row, low, high: (
        row["physicalOffset"] in (low["physicalOffset"], high["physicalOffset"])
    ),
    "storeTimestamp > {low[storeTimestamp]} AND topic <> 'none'": lambda row, low, high: (
        row["storeTimestamp"] > low["storeTimestamp"]
    ),
    "storeTime BETWEEN '{low[storeTime]}' AND timestamp'{high[storeTime]}'": lambda row, low, high: (
        low["storeTimestamp"] <= row["storeTimestamp"] <= high["storeTimestamp"]
    ),
    "storeTime < timestamp'{low[storeTime]}'": lambda row, low, high: row["storeTimestamp"] < low["storeTimestamp"],
}


@pytest.mark.parametrize("name", ["broker-497", "533-crash"])
@pytest.mark.parametrize("condition", PRUNED)
def test_only_splits_that_a_query_needs_are_read(
    name: str, condition: str, golden_stores: dict[str, Path], rmqctl: Rmqctl
) -> None:
    messages = dumped(golden_stores[name])
    low, high = messages[len(messages) // 2], messages[len(messages) * 5 // 8]
    query = f"SELECT physicalOffset AS at FROM messages WHERE {condition.format(low=low, high=high)}"
    found = rmqctl("job", "sql", query, golden_stores[name], "-o", "json")
    wanted = [row["physicalOffset"] for row in messages if PRUNED[condition](row, low, high)]
    assert sorted(row["at"] for row in found.document()["rows"]) == wanted
    files = len(list((golden_stores[name] / "commitlog").iterdir()))
    said = re.match(r"reading (\d+) of (\d+) splits: ", found.err)
    assert said is not None, found.err
    assert 0 < int(said[1]) < int(said[2]) == files
    assert found.document()["scanned"]["messages"] < len(messages)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT topic AS at FROM messages WHERE physicalOffset > 0 AND size = (SELECT max(size) FROM messages)",
        "SELECT m.physicalOffset AS at FROM messages m JOIN messages o USING (msgId) WHERE m.physicalOffset > 400000",
        "SELECT physicalOffset AS at FROM (SELECT * FROM messages LIMIT 7) WHERE physicalOffset > 400000",
        "SELECT physicalOffset AS at FROM messages WHERE physicalOffset > 400000 OR queueId = 0",
        "SELECT physicalOffset AS at FROM messages WHERE abs(physicalOffset) > 400000",
        "SELECT physicalOffset AS at FROM messages WHERE physicalOffset > NULL",
        "SELECT physicalOffset AS at FROM messages WHERE 400000 IN (physicalOffset, 400000)",
    ],
)
def test_the_whole_log_is_read_if_a_table_has_no_bounds(
    query: str, golden_stores: dict[str, Path], rmqctl: Rmqctl
) -> None:
    found = rmqctl("job", "sql", query, golden_stores["broker-497"], "-o", "json")
    assert found.document()["scanned"]["messages"] == len(dumped(golden_stores["broker-497"]))


def test_the_present_time_moves_on_until_the_query_runs(spark: SparkSession) -> None:
    before = time.time() * 1000
    query = "SELECT topic FROM messages WHERE storeTime BETWEEN now() - INTERVAL 1 HOUR AND now()"
    found = needed(spark, query, ["topic", "storeTime"])
    assert found.since is not None
    assert found.until is not None
    assert before - 3_600_001 <= found.since < before
    assert found.until >= before + 60_000


def test_bounds_of_two_tables_and_damage(damaged_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    root = damaged_stores["471-basic--body-flip-first-abnormal"]
    damage = next(row for row in rmqctl("dump", root, "--damaged", "-o", "jsonl").rows() if "damage" in row)
    place = damage["physicalOffset"]
    query = (
        f"SELECT physicalOffset AS at, damage AS what FROM damage WHERE physicalOffset BETWEEN {place} AND {place} "
        f"UNION ALL SELECT physicalOffset, topic FROM messages WHERE physicalOffset < {place} AND physicalOffset > "
        f"{place - 3000} LIMIT 99"
    )
    found = rmqctl("job", "sql", query, root, "-o", "json")
    before = [row["physicalOffset"] for row in dumped(root) if place - 3000 < row["physicalOffset"] < place]
    assert sorted(row["at"] for row in found.document()["rows"]) == sorted([place, *before])
    assert (found.code, re.match("reading [12] of ", found.err) is not None) == (1, True)
    assert f"{damage['size']} bytes in damaged places were not read as messages: `rmqctl dump STORE" in found.err
    assert found.err.endswith("`rmqctl verify STORE` names the damaged places\n")
    nothing = rmqctl("job", "sql", "SELECT topic FROM messages WHERE physicalOffset > 9999999999", root, "-o", "json")
    assert nothing.document()["rows"] == []
    assert nothing.err.startswith("reading 1 of ")


def test_queues_and_index(golden_stores: dict[str, Path], rmqctl: Rmqctl) -> None:
    root = golden_stores["broker-497"]
    listed = rmqctl("queue", root, "orders", "2", "-o", "jsonl").rows()
    query = (
        "SELECT queueOffset, physicalOffset, size, tagsCode FROM queues WHERE topic = 'orders' AND queueId = 2 "
        "ORDER BY queueOffset"
    )
    found = rmqctl("job", "sql", query, root, "-o", "jsonl")
    assert (found.code, found.err) == (0, "")
    assert found.rows() == [
        {key: row[key] for key in ("queueOffset", "physicalOffset", "size", "tagsCode")} for row in listed
    ]
    joined = (
        "SELECT count(DISTINCT i.phyOffset) AS n FROM index i JOIN messages m ON i.phyOffset = m.physicalOffset "
        "AND i.store = m.store"
    )
    keyed = sum("UNIQ_KEY" in row["properties"] or "KEYS" in row["properties"] for row in dumped(root))
    assert rmqctl("job", "sql", joined, root, "-o", "jsonl").rows() == [{"n": keyed}]


def test_an_answer_in_files(golden_stores: dict[str, Path], tmp_path: Path, document: Callable[..., Row]) -> None:
    from pyarrow import dataset

    root, folder = golden_stores["broker-497"], tmp_path / "an answer %20é#"
    query = "SELECT physicalOffset, body, properties FROM messages ORDER BY physicalOffset"
    found = document("sql", query, root, "--to", folder, "--limit", 1)
    rows = dataset.dataset(folder, format="parquet").to_table().to_pylist()
    wanted = dumped(root, "hex")
    assert sorted((row["physicalOffset"], row["body"].hex()) for row in rows) == [
        (row["physicalOffset"], row["body"]) for row in wanted
    ]
    assert (found["code"], found["scanned"]["messages"], found["format"]) == (0, len(wanted), "parquet")
    assert found["fileCount"] == len(list(folder.glob("part-*.parquet")))
    assert (folder / "_SUCCESS").exists()
    assert list(tmp_path.iterdir()) == [folder]


def test_files_of_text_and_what_is_refused(golden_stores: dict[str, Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden_stores["533-basic"]
    to = (root, "--to", tmp_path / "out", "--format", "csv")
    bytes_of = base64.b64encode(b"\xff" * 90).decode()
    formula = (
        "SELECT '=1+1' AS a, concat('x\"', char(10)) AS b, CAST(NULL AS string) AS c, 1 AS `=d`, "
        f"unhex('{'ff' * 90}') AS e FROM messages LIMIT 1"
    )
    assert rmqctl("job", "sql", formula, *to).code == 0
    path = next((tmp_path / "out").glob("part-*.csv"))
    with path.open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"a": "'=1+1", "b": 'x"\n', "c": "", "'=d": "1", "e": bytes_of}]
    before = sorted((tmp_path / "out").iterdir())
    for query, mode, said in (
        ("SELECT topic FROM messages", "error", "already exists"),
        ("SELECT properties FROM messages", "overwrite", "CSV"),
        ("SELECT 1/0 AS x FROM messages", "overwrite", "ivision by zero"),
    ):
        result = rmqctl("job", "sql", query, *to, "--mode", mode)
        assert (result.code, result.out, said in result.err) == (2, "", True), result.err
        assert sorted((tmp_path / "out").iterdir()) == before
    assert not list(tmp_path.glob(".out.*"))
