"""Messages by topic, and by topic and minute: jobs on Spark, beside DuckDB on `dump` and on exported Parquet files.

The jobs run in a warm session. DuckDB runs in a new Python, and `dump` is a whole command.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.command import TIMEOUT_SECONDS, rmqctl
from tests.bench.cpu import cpu_seconds
from tests.bench.jobs import WORKERS, log_size, run_job, warm
from tests.bench.large_log import large_log

COUNTING_HEADINGS = ("512 MiB, bodies of 1 KiB, 10 topics", "count by", "seconds", "CPU seconds", "MB/s of log")
FILE_SIZE = 512 << 20
MINUTE_MS = 60_000
BY_TOPIC, BY_MINUTE = "topic", "topic, minute"
QUERIES = {
    BY_TOPIC: "SELECT topic, count(*) AS n FROM {} GROUP BY topic",
    BY_MINUTE: f"SELECT topic, storeTimestamp - storeTimestamp % {MINUTE_MS} AS minute, count(*) AS n FROM {{}} "
    "GROUP BY topic, minute",
}
LINES = "read_json('/dev/stdin', format='newline_delimited', columns={topic: 'VARCHAR', storeTimestamp: 'BIGINT'})"
Counts = list[tuple[Any, ...]]  # topic, minute if asked for, messages; in order
Way = tuple[str, str]  # what reads the log, and what it counts by, if it counts
Cost = tuple[float, float]  # seconds, CPU seconds


def counting_rows(work: Path, runs: int) -> list[list[str]]:
    """A row for each way to count; those of DuckDB only where it is installed."""
    store = large_log(work, "mixed", 1, FILE_SIZE, mixed=True)
    with_duckdb = find_spec("duckdb") is not None
    if not with_duckdb:
        print("bench: DuckDB is missing, so its rows are left out; pip install '.[bench]'", file=sys.stderr, flush=True)
    with warm(store, WORKERS), TemporaryDirectory(dir=work) as folder:
        ways = _jobs(store) | (_with_duckdb(store, Path(folder)) if with_duckdb else {})
        found = [_round(ways) for _ in range(runs + 1)][1:]  # the first one does not count
    return [_row(way, store, [costs[way] for costs in found]) for way in ways]


def _jobs(store: Path) -> dict[Way, Callable[[], Counts]]:
    return {
        ("job stats", BY_TOPIC): partial(_stats, store),
        ("job timeline --by topic", BY_MINUTE): partial(_timeline, store),
        **{("job sql", by): partial(_sql, store, query.format("messages")) for by, query in QUERIES.items()},
    }


def _with_duckdb(store: Path, folder: Path) -> dict[Way, Callable[[], Counts | None]]:
    """The exports stand before what reads their files."""
    exported = folder / "exported"
    files = f"read_parquet('{exported}/*/*/*.parquet', hive_partitioning=true)"
    return {
        **{
            ("dump -o jsonl, piped into DuckDB", by): partial(_dumped, store, query.format(LINES))
            for by, query in QUERIES.items()
        },
        ("job export --body none", ""): partial(_export, store, folder / "no-bodies", "none"),
        ("job export", ""): partial(_export, store, exported, "binary"),
        **{
            ("DuckDB on the exported files", by): partial(_duckdb, query.format(files)) for by, query in QUERIES.items()
        },
    }


def _round(ways: dict[Way, Callable[[], Counts | None]]) -> dict[Way, Cost]:
    """The cost of each way. Raises RuntimeError if two ways have two answers."""
    costs: dict[Way, Cost] = {}
    answers: dict[str, Counts] = {}
    for way, count in ways.items():
        cpu, begin = cpu_seconds(), time.perf_counter()
        answer = count()
        costs[way] = time.perf_counter() - begin, cpu_seconds() - cpu
        if answer is not None and answers.setdefault(way[1], answer) != answer:
            raise RuntimeError(f"{way[0]}, by {way[1]}: {answer} instead of {answers[way[1]]}")
    return costs


def _row(way: Way, store: Path, costs: list[Cost]) -> list[str]:
    seconds, cpu = (median(some) for some in zip(*costs, strict=True))
    return [*way, f"{seconds:.2f}", f"{cpu:.2f}", f"{log_size(store) / seconds / 1e6:,.0f}"]


def _stats(store: Path) -> Counts:
    found: Counter[str] = Counter()
    for queue in run_job(["stats", str(store)])["queues"]:
        found[queue["topic"]] += queue["messages"]
    return sorted(found.items())


def _timeline(store: Path) -> Counts:
    found = run_job(["timeline", "--by", "topic", str(store)])["intervals"]
    return sorted((one["topic"], one["timestamp"], one["messages"]) for one in found)


def _sql(store: Path, query: str) -> Counts:
    found = run_job(["sql", query, str(store)])
    return sorted(tuple(row[name] for name in found["columns"]) for row in found["rows"])


def _export(store: Path, to: Path, body: str) -> None:
    shutil.rmtree(to, ignore_errors=True)
    run_job(["export", str(store), "--to", str(to), "--body", body])


def _dumped(store: Path, query: str) -> Counts:
    """Raises RuntimeError when `dump` does not end clean, CalledProcessError as `_duckdb`."""
    command = [rmqctl(), "dump", str(store), "-o", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as dump:
        found = _duckdb(query, dump.stdout)
    if dump.returncode:
        raise RuntimeError(f"dump ended with {dump.returncode}")
    return found


def _duckdb(query: str, stdin: Any = None) -> Counts:
    """Raises CalledProcessError when DuckDB refuses the query or what it reads."""
    command = [sys.executable, "-m", "tests.bench.duck", query]
    done = subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS, check=True)
    return sorted(tuple(row) for row in json.loads(done.stdout))
