"""Every `rmqctl job`, on a cluster and as a client of Spark Connect: the answers of a session in this process, or of
the same verb.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.conftest import Result, Rmqctl, tree_hash, unpack
from tests.spark.conftest import without_seconds
from tests.support.connect_server import ConnectServer
from tests.support.file_edits import write_at
from tests.support.journaled_store import files_of
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import Done

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Run = Callable[[Sequence[Sequence[object]]], list[Done]]
BY_QUEUE = (
    "SELECT topic, queueId, count(*) AS n, max(storeTime) AS last FROM messages GROUP BY topic, queueId ORDER "
    "BY topic, queueId"
)
LISTED = """
SELECT m.physicalOffset, m.body, m.properties, q.queueOffset
FROM messages m JOIN queues q USING (store, physicalOffset) WHERE q.queueId = 1 ORDER BY physicalOffset LIMIT 5
"""


class Stores(NamedTuple):
    """What is asked; `rebuilt` lacks its queues and index, `slave` is a copy of `master` that is damaged and behind."""

    lmq: Path
    master: Path
    slave: Path
    sent_twice: Path
    rebuilt: Path


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    lmq, master, sent_twice = (unpack(name, tmp_path / name) for name in ("497-lmq", "471-basic", "broker-533-kill"))
    slave, rebuilt = (
        Path(shutil.copytree(of, tmp_path / name / "store")) for of, name in ((master, "slave"), (lmq, "rebuilt"))
    )
    for part in ("consumequeue", "index"):
        shutil.rmtree(rebuilt / part)
    files = sorted((slave / "commitlog").iterdir())
    files[-1].write_bytes(bytes(files[-1].stat().st_size))
    write_at(files[0], 1000, b"\xff" * 50)
    shutil.rmtree(slave / "consumequeue" / min(path.name for path in (slave / "consumequeue").iterdir()))
    return Stores(lmq, master, slave, sent_twice, rebuilt)


def questions(stores: Stores, target: Path) -> dict[str, list[object]]:
    """Command lines after `rmqctl job`, whose answers say nothing of where or when they were made."""
    return {
        "stats": ["stats", stores.lmq, stores.slave],
        "timeline": ["timeline", stores.lmq, stores.master, "--interval", "1s", "--by", "topic"],
        "diff": ["diff", stores.master, stores.slave, "--bodies"],
        "lost": ["lost", stores.lmq, stores.slave],
        "trace": ["trace", stores.lmq, stores.slave, "--key", "order-2"],
        "duplicates": ["duplicates", stores.sent_twice],
        "sql": ["sql", BY_QUEUE, stores.lmq, stores.master],
        "sql on queues": ["sql", LISTED, stores.lmq],
        "export": ["export", stores.lmq, "--to", target],
    }


def told(result: Result) -> Any:
    """An answer; an export's folder is another one each time."""
    return result.code, result.document() | {"to": ""}, result.err


def exported(folder: Path) -> list[dict[str, Any]]:
    from pyarrow import dataset

    table = dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    return sorted(table.to_pylist(), key=lambda row: int(row["physicalOffset"]))


def answers(run: Run, stores: Stores, rebuilt: Path, target: Path) -> dict[str, Done]:
    """Run every job in one session; the results by their names."""
    jobs = {"verify": ["verify", stores.lmq], **questions(stores, target)}
    lines = [["job", *words, "-o", "json"] for words in jobs.values()]
    done = run([*lines, ["job", "rebuild", rebuilt, "--yes"]])
    return dict(zip([*jobs, "rebuild"], done, strict=True))


def test_answers_there_are_those_here(
    spark: SparkSession, cluster: Cluster, connect: ConnectServer, stores: Stores, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    before = [tree_hash(root) for root in stores]
    verified = rmqctl("verify", stores.lmq, "-o", "json")
    here = {
        name: told(rmqctl("job", *words, "-o", "json")) for name, words in questions(stores, tmp_path / "here").items()
    }
    copy = Path(shutil.copytree(stores.rebuilt, tmp_path / "copy"))
    assert rmqctl("rebuild", copy, "all", "--yes").code == 3
    for where, run in (("cluster", cluster.run), ("connect", connect.run)):
        rebuilt = Path(shutil.copytree(stores.rebuilt, tmp_path / where / "rebuilt"))
        found = answers(run, stores, rebuilt, tmp_path / where / "out")
        assert found["verify"].result.code == verified.code == 0
        assert without_seconds(found["verify"].result.document()) == without_seconds(verified.document())
        assert {name: told(found[name].result) for name in here} == here
        assert exported(tmp_path / where / "out") == exported(tmp_path / "here") != []
        assert found["rebuild"].result.code == 3
        assert files_of(rebuilt) == files_of(copy)
        if where == "cluster":
            for name in ("verify", "stats"):  # two tasks or more, of two executors
                assert len(cluster.tasks(found[name].begin, found[name].end)) == 2
    assert before == [tree_hash(root) for root in stores]
