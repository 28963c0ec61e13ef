"""Jobs on stores by URLs answer as on the same stores by paths."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.cli.job.job_run import unread
from rmqctl.logfile.system import remote_storage
from rmqctl.spark.scan.coverage import coverage, range_of
from rmqctl.spark.source.index_source import IndexSource
from rmqctl.spark.source.message_source import MessageSource
from rmqctl.spark.source.queue_source import QueueSource
from tests.conftest import Rmqctl, apply_damage, damage_cases, tree_hash, unpack
from tests.spark.conftest import without_seconds
from tests.support.counted_requests import counted_requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = damage_cases()
DAMAGED = next(name for name in sorted(CASES) if "--body-flip-first" in name)
FORMATS = {"rocketmq": "physicalOffset", "rocketmq-queues": "physicalOffset", "rocketmq-index": "entry"}


def url_of(root: Path) -> str:
    return f"fsspec+local://{root}"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    root = unpack(CASES[DAMAGED]["base"], tmp_path / "broker-a")
    apply_damage(root, CASES[DAMAGED]["ops"])
    return root


def test_verify(spark: SparkSession, damaged: Path, rmqctl: Rmqctl) -> None:
    before = tree_hash(damaged)
    here, there = rmqctl("verify", damaged, "-o", "json"), rmqctl("job", "verify", url_of(damaged), "-o", "json")
    assert there.code == here.code == 1
    assert without_seconds(there.document()) | {"store": ""} == without_seconds(here.document()) | {"store": ""}
    assert tree_hash(damaged) == before


@pytest.mark.parametrize("words", [["verify"], ["doctor"], ["lag"], ["trace", "--key", "order-2"]])
def test_whole_stores(spark: SparkSession, words: list[str], damaged: Path, rmqctl: Rmqctl) -> None:
    """Each small store of many in one task; the commands that doctor names next have the URL."""
    here, there = (rmqctl("job", *words, "-o", "json", *[where] * 4) for where in (damaged, url_of(damaged)))
    assert there.code == here.code
    documents = [json.loads(out.replace(url_of(damaged), str(damaged))) for out in (here.out, there.out)]
    for report in (report for document in documents for report in document.get("reports", ())):
        report["causes"] = [cause["code"] for cause in report.get("causes", ())]
        report["seconds"] = 0
    assert documents[0] == documents[1]


@pytest.mark.parametrize("question", ["stats", "timeline", "lost", "duplicates"])
def test_questions(spark: SparkSession, question: str, damaged: Path, rmqctl: Rmqctl) -> None:
    here, there = (rmqctl("job", question, where, "-o", "json") for where in (damaged, url_of(damaged)))
    assert there.code == here.code == 1
    assert here.document()["stores"] == [str(damaged)]
    assert there.out == here.out.replace(str(damaged), url_of(damaged))


def test_what_only_this_host_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors without access to a bucket are named, with the place and the way out."""
    unpack("533-basic", tmp_path)
    system_of = remote_storage._system_of
    source = MessageSource({"path": "fsspec+local:///denied/store", "ranges": "true"}, ["kind", "detail"])
    with monkeypatch.context() as with_access:
        with_access.setattr(remote_storage, "_system_of", lambda url: system_of(url.replace("/denied", str(tmp_path))))
        tasks = source.tasks()
    rows = [row for task in tasks for batch in source.read(task) for row in batch.to_pylist()]
    counts = coverage(range_of(row["detail"]) for row in rows if row["kind"] == "range").counts
    monkeypatch.setattr(remote_storage, "_system_of", lambda url: system_of(url.replace("/denied", str(tmp_path))))
    words = unread([counts])
    assert re.search(r"^fsspec\+local:///denied/store/commitlog/\d{20}: cannot be read: ", words)
    assert "so the executors lack access" in words
    assert "spark.executorEnv." in words


def test_diff(spark: SparkSession, damaged: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole = unpack(CASES[DAMAGED]["base"], tmp_path / "broker-b")
    there = rmqctl("job", "diff", url_of(whole), url_of(damaged), "-o", "json")
    assert there.code == 1
    assert there.out == rmqctl("job", "diff", whole, damaged, "-o", "json").out.replace(str(tmp_path), url_of(tmp_path))


def test_tables(spark: SparkSession, damaged: Path) -> None:
    from rmqctl.spark.source.data_source import register

    register(spark)
    for name, order in FORMATS.items():
        here, there = (
            _rows(spark.read.format(name).load(where).orderBy(order)) for where in (str(damaged), url_of(damaged))
        )
        assert there == [row | {"store": url_of(damaged)} for row in here]
        assert {row["broker"] for row in there} == {"broker-a"}


@pytest.mark.parametrize(
    ("source", "planning", "reading"),
    [
        (MessageSource, {"entry": 2, "list": 2}, {"open": 4, "read": 4, "entry": 2, "list": 2}),  # 4 files
        (QueueSource, {"entry": 2, "list": 3}, {"open": 16, "read": 16, "list": 17}),  # 16 queues of 4 topics
        (IndexSource, {"entry": 2, "list": 3}, {"open": 2, "read": 2, "entry": 4, "list": 6}),  # 2 files
    ],
)
def test_requests(
    source: Any, planning: dict[str, int], reading: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack("533-basic", tmp_path)
    asked = counted_requests(monkeypatch)
    table = source({"path": url_of(root)}, ["store"])
    tasks = table.tasks()
    assert asked == planning
    asked.clear()
    assert sum(batch.num_rows for task in tasks for batch in table.read(task)) >= 300
    assert asked == reading


def _rows(table: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.collect()]


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "stats", f"{url_of(tmp_path)}/none")
    assert (result.code, result.err) == (10, f"rmqctl: {url_of(tmp_path)}/none: no such folder\n")


def test_a_rebuild_is_refused(damaged: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "rebuild", url_of(damaged), "--yes")
    assert result.code == 2
    assert result.err.splitlines()[-1].startswith(
        f"rmqctl: {url_of(damaged)}: only a store on this host's own file systems can be rebuilt"
    )


def test_a_file_url_is_a_path(spark: SparkSession, damaged: Path, rmqctl: Rmqctl) -> None:
    by_path, by_url = (rmqctl("job", "verify", root, "-o", "json") for root in (damaged, f"file://{damaged}"))
    assert by_url.code == by_path.code
    assert without_seconds(by_url.document()) == without_seconds(by_path.document())


@pytest.mark.parametrize(
    ("url", "what"), [("s3://KEY:hidden@b/store", "a s3:// URL with a password"), ("file://h/x", "of another host")]
)
def test_urls_that_are_refused(url: str, what: str, rmqctl: Rmqctl) -> None:
    found = rmqctl("job", "stats", url)
    assert (found.code, len(found.err.strip().splitlines())) == (2, 1)
    assert what in found.err
    assert "hidden" not in found.err
