"""`rmqctl job export --format iceberg`, when the driver is killed in the middle of the write, and then an executor: the
table has the earlier rows, and then the new ones, each once.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import Result, Rmqctl
from tests.support.iceberg import environ_of_a_lake
from tests.support.log_maker import Record, write_log
from tests.support.spark_cluster import kill_executors
from tests.support.spark_process import all_done, awaited, ended, started_session

pytestmark = pytest.mark.spark

DAYS = 30  # a file each, one after the other: a kill after the first comes before the last
DAY_MS = 86_400_000
READ = "SELECT topic, physicalOffset FROM lake.db.t"


def stored(topic: str, days: int, folder: Path) -> Path:
    """A store with a message a day."""
    times = [Record.store_timestamp + day * DAY_MS for day in range(days)]
    records = [Record(topic, queue_offset=day, store_timestamp=time) for day, time in enumerate(times)]
    write_log(folder / topic, records, file_size=1 << 16)
    return folder / topic


def rows(result: Result) -> list[tuple[str, int]]:
    return sorted((row["topic"], row["physicalOffset"]) for row in result.rows())


def test_the_driver_is_killed_and_then_an_executor(tmp_path: Path, rmqctl: Rmqctl) -> None:
    earlier, new = stored("Earlier", 3, tmp_path), stored("New", DAYS, tmp_path)
    environ = environ_of_a_lake(tmp_path)
    read = ["job", "sql", READ, earlier, "-o", "jsonl"]
    to = ["--format", "iceberg", "--to", "lake.db.t", "--mode", "overwrite", "-o", "json"]

    def written() -> set[Path]:
        return set((tmp_path / "warehouse/db/t/data/topic=New").rglob("*.parquet"))

    killed = started_session([["job", "export", root, *to] for root in (earlier, new)], environ, master="local[2]")
    awaited(killed, written)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    left = written()
    assert 0 < len(left) < DAYS

    job = started_session([read, ["job", "export", new, *to], read], environ, master="local-cluster[1,2,1024]")
    awaited(job, lambda: written() - left)
    assert kill_executors(job) == 1
    session = ended(job)
    assert session.code == 0
    assert "Lost executor" in session.err
    before, made, after = (done.result for done in all_done(session))
    assert rows(before) == rows(rmqctl("dump", earlier, "-o", "jsonl"))
    assert rows(after) == rows(rmqctl("dump", new, "-o", "jsonl"))
    assert (made.code, made.document()["messages"], made.document()["fileCount"]) == (0, DAYS, DAYS)
    assert len(written() - left) > DAYS  # those of the killed executor, too, which the table does not name
