"""Queues and index, two keys a message, rebuilt from 1 GiB, beside the real broker's load and dispatch of that store
without them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import median

from tests.bench.command import peak_memory, run
from tests.bench.stores import WRITER, copy_without, dispatch_seconds, written_store

REBUILDING_HEADINGS = ("bodies", "rebuild all", "seconds", "messages/s", "x 4.9.7", "peak MB")


def rebuilding_rows(work: Path, body_size: int, runs: int) -> list[list[str]]:
    """A row each for the broker, for our own seconds, for the whole command with its syncs, and for --dry-run."""
    source = written_store(work, body_size)
    store = work / "rebuilt"
    copy_without(source, store, ("consumequeue", "index"))
    run(["rebuild", str(store), "all", "--dry-run"])  # compiles, where this is the first run; fills the page cache
    theirs, own, whole, looks = [dispatch_seconds(source, WRITER)], [], [], []
    for _ in range(runs):
        made = run(["rebuild", str(store), "all", "--yes", "-o", "json"])
        document = json.loads(made.out)
        own.append(document["seconds"])
        whole.append(made.seconds)
        run(["undo", str(store), "--yes"])
        looks.append(run(["rebuild", str(store), "all", "--dry-run"], keep_output=False).seconds)
    theirs.append(dispatch_seconds(source, WRITER))
    peak = peak_memory(["rebuild", str(store), "all", "--yes"])
    shutil.rmtree(store)
    rows = (
        (f"real {WRITER}, load and dispatch", theirs, ""),
        ("own seconds", own, f"{peak / 1e6:.0f}"),
        ("whole command", whole, ""),
        ("--dry-run, whole command", looks, ""),
    )
    messages = document["messages"]
    return [
        [
            str(body_size),
            what,
            f"{median(found):.2f}",
            f"{messages / median(found):,.0f}",
            f"{median(theirs) / median(found):.1f}",
            memory,
        ]
        for what, found, memory in rows
    ]
