"""`python -m tests.bench WORK`: how fast rmqctl is, beside the real broker and the machine's limits, all in one run.

WORK is a folder for the stores (about 10 GiB, kept for the next run; a tmpfs or a warm page cache is what is measured).
Needs a JDK, Maven and the extra `spark`; the group `bench` adds DuckDB. The table goes to stdout as Markdown, as
rmqctl-benchmarks(7) shows it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.bench.by_tasks import BY_TASKS_HEADINGS, by_tasks_rows
from tests.bench.counting import COUNTING_HEADINGS, counting_rows
from tests.bench.driver import DRIVER_HEADINGS, driver_rows
from tests.bench.jobs import (
    FIXED_HEADINGS,
    FLEET_HEADINGS,
    JOBS_HEADINGS,
    QUESTION_HEADINGS,
    SPLIT_HEADINGS,
    fixed_rows,
    fleet_rows,
    jobs_rows,
    question_rows,
    split_rows,
)
from tests.bench.memory import memory_rows
from tests.bench.query import query_rows
from tests.bench.reading import reading_rows
from tests.bench.rebuilding import REBUILDING_HEADINGS, rebuilding_rows
from tests.bench.replicating import REPLICATING_HEADINGS, replicating_rows
from tests.bench.simulate import SIMULATE_HEADINGS, simulate_rows
from tests.bench.stores import BODY_SIZES, written_store
from tests.bench.table import markdown
from tests.bench.wide import LOAD_HEADINGS, WIDE_HEADINGS, load_rows, wide_rows
from tests.bench.writing import writing_rows

HEADINGS = (
    "bodies",
    "operation",
    "seconds",
    "GB/s",
    "records/s",
    "x 4.9.7",
    "x 5.3.3",
    "of page cache",
    "of CRC-32",
    "peak MB",
)
MEMORY_HEADINGS = ("peak memory less file pages, MB", "1 GiB", "20 GiB", "1 GiB of 100-byte bodies, 8 threads")


def main() -> None:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("work", type=Path, help="folder for the stores")
    parser.add_argument("--runs", type=int, default=5, help="each command so often; the median counts (default 5)")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows: list[list[str]] = []
    for body_size in BODY_SIZES:
        _say(f"bodies of {body_size} bytes")
        rows += reading_rows(written_store(arguments.work, body_size), body_size, arguments.runs)
    print(markdown(HEADINGS, rows))
    _say("rebuilding")
    rows = [row for body_size in BODY_SIZES for row in rebuilding_rows(arguments.work, body_size, arguments.runs)]
    print(markdown(REBUILDING_HEADINGS, rows))
    _say("appending")
    rows = writing_rows(arguments.work, list(BODY_SIZES), arguments.runs)
    print(markdown(("bodies", "appending, one thread", "messages/s", "x 4.9.7"), rows))
    _say("replicating")
    print(markdown(REPLICATING_HEADINGS, replicating_rows(arguments.work, arguments.runs)))
    _say("look-ups")
    print(
        markdown(
            ("look-up on 1 GiB, 20 million index entries", "seconds", "x `--help`"),
            query_rows(arguments.work, arguments.runs),
        )
    )
    _say("a wide store")
    print(markdown(WIDE_HEADINGS, wide_rows(arguments.work, arguments.runs)))
    print(markdown(LOAD_HEADINGS, load_rows(arguments.work, arguments.runs)))
    _say("jobs on Spark")
    print(markdown(JOBS_HEADINGS, jobs_rows(arguments.work, arguments.runs)))
    print(markdown(DRIVER_HEADINGS, driver_rows(arguments.work, arguments.runs)))
    print(markdown(SIMULATE_HEADINGS, simulate_rows(arguments.work)))
    print(markdown(SPLIT_HEADINGS, split_rows(arguments.work, arguments.runs)))
    print(markdown(FLEET_HEADINGS, fleet_rows(arguments.work, arguments.runs)))
    print(markdown(QUESTION_HEADINGS, question_rows(arguments.work, arguments.runs)))
    print(markdown(COUNTING_HEADINGS, counting_rows(arguments.work, arguments.runs)))
    print(markdown(BY_TASKS_HEADINGS, by_tasks_rows(arguments.work, arguments.runs)))
    print(markdown(FIXED_HEADINGS, fixed_rows(arguments.work, arguments.runs)))
    _say("memory")
    print(
        markdown(
            ("peak memory less file pages, MB", "1 GiB", "20 GiB", "1 GiB of 100-byte bodies, 8 threads"),
            memory_rows(arguments.work),
        )
    )


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr, flush=True)


main()
