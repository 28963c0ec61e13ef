"""`job verify` on 4 GiB by an embedded Spark, beside `verify` with as many threads; by splits, by workers; and what any
job costs.

Sessions are warm: what starts Spark is in the fixed cost. Seconds are those of the scan, as both commands tell them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from rmqctl.cli.main import rmqctl
from rmqctl.spark.question.verify import verify
from rmqctl.spark.scan.split import MIB, SPLIT_MIB
from rmqctl.spark.session.session import Target, session
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.bench.command import median_seconds, run
from tests.bench.large_log import FILE_SIZE, FILES, large_log
from tests.bench.stores import keyed_store
from tests.conftest import unpack
from tests.support import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS_HEADINGS = ("4 GiB, bodies of 1 KiB, two keys a message", "seconds", "GiB/s", "of local", "x one worker")
SPLIT_HEADINGS = ("MiB a split", "seconds", "GiB/s")
QUESTION_HEADINGS = ("4 GiB, bodies of 1 KiB", "seconds", "GiB/s", "of job verify --level 1")
FLEET_HEADINGS = ("4 GiB on a cluster of two workers, level 3", "seconds", "GiB/s", "x one store")
FLEET = 40
FIXED_HEADINGS = ("whole command, 200 KB", "seconds")
LEVELS = {1: "--level 1", 3: "all levels"}
QUESTIONS = {
    "stats": ["stats"],
    "timeline": ["timeline"],
    "sql, count by topic": ["sql", "SELECT topic, count(*) AS n FROM messages GROUP BY topic"],
    "export": ["export"],
}
WORKERS = 2
GIB = 1 << 30
SPLITS_MIB = (16, 64, 128, 256, 1024)


def jobs_rows(work: Path, runs: int) -> list[list[str]]:
    """A row for each level and each way to read the log."""
    store = keyed_store(work)
    seconds: dict[tuple[int, str], float] = {}
    for level in LEVELS:
        command = ["verify", str(store), "--level", str(level), "--threads", str(WORKERS), "-o", "json"]
        seconds[level, "local"] = median(_whole(json.loads(run(command).out)) for _ in range(runs))
    for workers in (1, WORKERS):
        with warm(store, workers) as spark:
            for level in LEVELS:
                seconds[level, f"local[{workers}]"] = median(
                    _job_seconds(spark, store, level, SPLIT_MIB) for _ in range(runs)
                )
    return [
        _row(store, level, way, seconds)
        for level, way in sorted(seconds, key=lambda one: (one[0], one[1] != "local", one[1]))
    ]


def split_rows(work: Path, runs: int) -> list[list[str]]:
    """A row for each size of splits: all levels, both workers."""
    store = keyed_store(work)
    size = log_size(store)
    with warm(store, WORKERS) as spark:
        found = {mib: median(_job_seconds(spark, store, 3, mib) for _ in range(runs)) for mib in SPLITS_MIB}
    return [[str(mib), f"{seconds:.2f}", f"{size / seconds / GIB:.2f}"] for mib, seconds in found.items()]


def fleet_rows(work: Path, runs: int) -> list[list[str]]:
    """A row for the same bytes in one store and in many, on a standalone cluster of two workers, in one warm driver."""
    whole = large_log(work)
    parts = [large_log(work, f"fleet-{number:02}", 1, FILES * FILE_SIZE // FLEET) for number in range(FLEET)]
    commands = {"one store": [whole], f"{FLEET} stores": parts}
    lines = [["job", "verify", *stores, "-o", "json"] for stores in commands.values()] * (runs + 1)
    with TemporaryDirectory() as folder, spark_cluster.started(Path(folder)) as cluster:
        done = cluster.run(lines)[len(commands) :]
    bad = [job.result.err for job in done if job.result.code]
    if bad:
        raise RuntimeError(f"a job failed: {bad[0]}")
    seconds = {
        what: median((job.end - job.begin) / 1000 for job in done[first :: len(commands)])
        for first, what in enumerate(commands)
    }
    size, single = log_size(whole), seconds["one store"]
    return [[what, f"{own:.2f}", f"{size / own / GIB:.2f}", f"{own / single:.2f}"] for what, own in seconds.items()]


def question_rows(work: Path, runs: int) -> list[list[str]]:
    """A row for each job that counts or exports, beside the bare scan: with its planning, in a warm session."""
    store = large_log(work)
    size = log_size(store)
    with warm(store, WORKERS) as spark, TemporaryDirectory(dir=work) as folder:
        bare = median(_job_seconds(spark, store, 1, SPLIT_MIB) for _ in range(runs))
        to = {"export": ["--to", str(Path(folder) / "exported"), "--mode", "overwrite"]}
        found = {
            what: _question_seconds([*arguments, *to.get(what, [])], store, runs)
            for what, arguments in QUESTIONS.items()
        }
    return [
        [f"job {what}", f"{seconds:.2f}", f"{size / seconds / GIB:.2f}", f"{bare / seconds:.2f}"]
        for what, seconds in found.items()
    ]


def _question_seconds(arguments: Sequence[str], store: Path, runs: int) -> float:
    """The median of whole jobs, after one that does not count."""
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        run_job([*arguments, str(store)])
        seconds.append(time.perf_counter() - begin)
    return median(seconds[1:])


def run_job(arguments: Sequence[str]) -> Any:
    """The document of `rmqctl job` in this process. Raises RuntimeError when it does not end clean."""
    result = CliRunner().invoke(rmqctl, ["job", *arguments, "-o", "json"], standalone_mode=False)
    if result.exception or result.return_value:
        raise RuntimeError(f"job {arguments[0]}: {result.exception or result.output}")
    return json.loads(result.stdout)


def fixed_rows(work: Path, runs: int) -> list[list[str]]:
    """What a job costs on next to nothing."""
    folder = work / "tiny"
    store = folder / "store" if folder.exists() else unpack("497-basic", folder)
    commands = {
        "verify": ["verify", str(store)],
        "job verify": ["job", "verify", str(store), "--master", f"local[{WORKERS}]"],
    }
    return [[what, f"{seconds:.2f}"] for what, seconds in median_seconds(commands, runs).items()]


@contextmanager
def warm(store: Path, workers: int) -> Iterator[SparkSession]:
    """A session that has done a job."""
    with session(Target(master=f"local[{workers}]"), os.environ) as spark:
        _job_seconds(spark, store, 3, SPLIT_MIB)
        yield spark


def _job_seconds(spark: SparkSession, root: Path, level: int, split_mib: int) -> float:
    with closing(ReadOnlyStore(root)) as store:
        return _whole(verify(spark, store, level=level, split_size=split_mib * MIB).to_json())


def _whole(document: dict[str, Any]) -> float:
    """Its seconds. Raises RuntimeError where it did not find the store whole: then something else was measured."""
    if document["findings"]:
        raise RuntimeError(f"a generated store has findings: {document['findings'][0]}")
    return float(document["seconds"])


def log_size(store: Path) -> int:
    return sum(path.stat().st_size for path in (store / "commitlog").iterdir())


def _row(store: Path, level: int, way: str, seconds: dict[tuple[int, str], float]) -> list[str]:
    rate = partial(_ratio, seconds, level, way)
    what = f"verify {LEVELS[level]}, --threads {WORKERS}" if way == "local" else f"job verify {LEVELS[level]}, {way}"
    own = seconds[level, way]
    return [
        what,
        f"{own:.2f}",
        f"{log_size(store) / own / GIB:.2f}",
        rate("local"),
        "" if way == "local" else rate("local[1]"),
    ]


def _ratio(seconds: dict[tuple[int, str], float], level: int, way: str, other: str) -> str:
    return f"{seconds[level, other] / seconds[level, way]:.2f}"
