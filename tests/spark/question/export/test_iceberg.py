"""`rmqctl job export --format iceberg`, and why it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Rmqctl
from tests.spark.question.conftest import dumped
from tests.support.iceberg import environ_of_a_lake
from tests.support.spark_process import in_one_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

READ = "SELECT broker, store, topic, queueId, queueOffset, physicalOffset, msgId, storeTimestamp, body FROM lake.db.t"


def spark_version() -> str:
    import pyspark

    return ".".join(pyspark.__version__.split(".")[:2])


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("lake.db.messages", "the Spark session has no catalog lake (set spark.sql.catalog.lake=org.apache.iceberg."),
        ("messages", "messages is not the name of a table (--to CATALOG.DATABASE.TABLE)"),
        ("lake..messages", "lake..messages is not the name of a table"),
        ("gone.db.messages", "Spark cannot use the catalog gone: "),
    ],
)
def test_what_is_refused(
    table: str, said: str, golden_stores: dict[str, Path], rmqctl: Rmqctl, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.catalog.gone", "org.example.Gone")  # as without Iceberg's runtime
    result = rmqctl("job", "export", golden_stores["533-basic"], "--format", "iceberg", "--to", table)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err
    assert spark_version() in result.err or "--to CATALOG" in result.err


def test_a_table(golden_stores: dict[str, Path], tmp_path: Path) -> None:
    """With the newest Spark that Iceberg has a build for."""
    first, second = golden_stores["broker-497"], golden_stores["533-basic"]
    to = ("--format", "iceberg", "--to", "lake.db.t", "-o", "json")
    lines: list[list[object]] = [
        ["job", "export", first, *to],
        ["job", "export", second, *to],
        ["job", "export", second, *to, "--mode", "append"],
        ["job", "sql", READ, first, "-o", "json"],
        ["job", "export", second, *to, "--mode", "overwrite"],
        ["job", "sql", READ, first, "-o", "json"],
    ]
    done = in_one_session(lines, environ_of_a_lake(tmp_path), master="local[2]")
    made, again, appended, both, replaced, last = (one.result for one in done)
    assert (made.code, appended.code, replaced.code, both.err, last.err) == (0, 0, 0, "", "")
    assert (again.code, "already exists" in again.err) == (2, True)
    for result, roots in ((both, [first, second]), (last, [second])):
        rows = json.loads(result.out)["rows"]
        wanted = [
            row | {"broker": root.parent.name, "store": str(root)} for root in roots for row in dumped(root, "base64")
        ]
        keys = [name for name in rows[0] if name != "body"]
        assert sorted([row[name] for name in (*keys, "body")] for row in rows) == sorted(
            [row[name] for name in (*keys, "body")] for row in wanted
        )
    assert made.document()["messages"] == len(dumped(first))
    assert made.document()["fileCount"] > 0
