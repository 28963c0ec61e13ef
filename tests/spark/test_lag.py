"""`rmqctl job lag` by a real Spark: the documents of `rmqctl lag`, and their sums by group."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.group_offsets import add_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SUMS = ("behind", "retryDepth", "retriesDelayed", "dlqDepth", "popped", "expiredUnread")
GROUP_HEADINGS = ["BEHIND", "OLDEST", "AGE", "RETRY", "DELAYED", "DLQ", "POPPED"]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three brokers; `audit` is a group of the last one only, and is beyond the end of its queue."""
    folder = tmp_path_factory.mktemp("brokers")
    found = [unpack(name, folder / name) for name in ("533-basic", "497-lmq", "broker-533")]
    add_offsets(found[-1], {"orders@audit": {"0": 10**6}})
    return found


def test_each_report_is_what_lag_says(spark: SparkSession, roots: list[Path], tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A store that does not exist ends no other, and its exit code is the largest."""
    before = [tree_hash(root) for root in roots]
    found = rmqctl("job", "lag", tmp_path / "none", *roots, "--max-behind", "10", "-o", "json")
    assert found.code == 10
    document = found.document()
    first, *reports = document["reports"]
    assert first == {"store": str(tmp_path / "none"), "exitCode": 10, "error": f"{tmp_path / 'none'}: no such folder"}
    assert document["stores"] == [str(root) for root in (tmp_path / "none", *roots)]
    for root, report in zip(roots, reports, strict=True):
        here = rmqctl("lag", root, "--max-behind", "10", "-o", "json")
        assert report.pop("exitCode") == here.code == 1
        notes = report.pop("notes")
        assert here.err == "".join(f"{note}\n" for note in notes)
        assert all(f"{root}: {note}" in found.err for note in notes)
        assert {"schema": "rmqctl.lag/1"} | report == here.document()
    assert document["groupTotals"] == sums_of(reports)
    assert [tree_hash(root) for root in roots] == before


def sums_of(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum the groups in the order of their names; the broker's own come last."""
    rows = [row for report in reports for row in report["groupTotals"]]
    sums = []
    for group in sorted({row["group"] for row in rows}, key=lambda name: (name.startswith("CID_RMQ_SYS_"), name)):
        own = [row for row in rows if row["group"] == group]
        waiting = [row for row in own if row["oldestStoreTime"] is not None]
        oldest = min(waiting, key=lambda row: int(row["oldestStoreTimestamp"]), default=own[0])
        counts = {name: sum(row[name] for row in own) for name in SUMS}
        counts |= {name: oldest[name] for name in ("oldestStoreTimestamp", "oldestStoreTime")}
        counts["behindAtLeast"] = any(row["behindAtLeast"] for row in own)
        age = max((row["oldestAgeMs"] for row in waiting), default=None)
        sums.append({"group": group, "storeCount": len(own), "oldestAgeMs": age} | counts)
    return sums


def test_a_group_that_one_broker_knows(spark: SparkSession, roots: list[Path], rmqctl: Rmqctl) -> None:
    found = rmqctl("job", "lag", *roots, "--group", "audit", "--max-behind", "10m", "-o", "json")
    assert found.code == 1
    assert [report["exitCode"] for report in found.document()["reports"]] == [0, 0, 1]
    assert [len(report["groups"]) > 0 for report in found.document()["reports"]] == [False, False, True]
    assert f"{roots[-1]}: audit in orders/0 is at 1000000, after the queue's end" in found.err
    assert str(roots[0]) not in found.err
    idle = rmqctl("job", "lag", *roots, "--group", "TOOLS_CONSUMER")  # it reads no queue
    here = rmqctl("lag", roots[-1], "TOOLS_CONSUMER")
    assert (idle.code, idle.out) == (here.code, here.out) == (0, "")
    assert f"{roots[-1]}: {here.err}" in idle.err
    unknown = rmqctl("job", "lag", *roots, "--group", "nobody")
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("rmqctl: no store knows the group 'nobody' (")


def test_a_group_may_be_in_what_cannot_be_read(
    spark: SparkSession, roots: list[Path], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    bad = unpack("497-basic", tmp_path)
    (bad / "config" / "consumerOffset.json").write_bytes(b"{")
    (bad / "config" / "consumerOffset.json.bak").write_bytes(b"{")
    found = rmqctl("job", "lag", bad, roots[0], bad, "--group", "nobody", "-o", "json")
    assert found.code == 4
    assert found.document()["stores"] == [str(bad), str(roots[0])]
    assert f"{bad}: config/consumerOffset.json: " in found.err


def test_the_tables_and_the_rows(spark: SparkSession, roots: list[Path], rmqctl: Rmqctl) -> None:
    table = rmqctl("job", "lag", *roots)
    assert table.code == 0
    sums, of_stores = (part.splitlines() for part in table.out.split("\n\n"))
    assert sums[0].split() == ["GROUP", "STORES", *GROUP_HEADINGS]
    assert of_stores[0].split() == ["STORE", "GROUP", *GROUP_HEADINGS]
    billing = next(line.split() for line in sums if line.startswith("billing"))
    of_billing = [line.split() for line in of_stores if line.split()[1] == "billing"]
    assert [words[0] for words in of_billing] == [str(root) for root in roots]
    assert int(billing[2]) == sum(int(words[2]) for words in of_billing) > 0
    rows = rmqctl("job", "lag", *roots, "-o", "jsonl").rows()
    here = [{"store": str(root)} | row for root in roots for row in rmqctl("lag", root, "-o", "jsonl").rows()]
    assert rows == here
    cells = list(csv.DictReader(io.StringIO(rmqctl("job", "lag", *roots, "-o", "csv").out)))
    assert [(row["store"], row["group"], row["behind"]) for row in cells] == [
        (row["store"], row["group"], str(row["behind"])) for row in rows
    ]
