"""verify and dump over a whole store: rates, and ratios to the brokers' recovery and the machine's limits of the same run."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from tests.bench.command import Run, median_seconds, peak_memory, run
from tests.bench.limits import crc32_rate, page_cache_rate
from tests.bench.stores import load_seconds

LEVELS = {1: "verify --level 1", 2: "verify --level 2", 3: "verify"}


def reading_rows(store: Path, body_size: int, runs: int) -> list[list[str]]:
    """The table's rows for one store; verify's seconds are its own, dump's those of the whole command."""
    log = store / "commitlog" / f"{0:020d}"
    run(["verify", str(store)])  # compiles, where this is the first run; fills the page cache
    whole = _document(run(["verify", str(store), "-o", "json"]))
    size, records = whole["bytesScanned"], whole["messages"]
    page_cache, crc = page_cache_rate(log, size, runs), crc32_rate(log, size, runs)
    brokers = {version: load_seconds(store, version) for version in ("4.9.7", "5.3.3")}

    def row(what: str, seconds: float, peak: int | None = None) -> list[str]:
        rate = size / seconds
        memory = "" if peak is None else f"{peak / 1e6:.0f}"
        ratios = (f"{brokers[version] / seconds:.1f}" for version in brokers)
        limits = (f"{rate / limit:.2f}" for limit in (page_cache, crc))
        return [str(body_size), what, f"{seconds:.2f}", f"{rate / 1e9:.2f}", f"{records / seconds:,.0f}", *ratios, *limits, memory]

    rows = [row("page cache, one thread", size / page_cache), row("and CRC-32, one thread", size / crc)]
    rows += [row(f"recovery by the real {version}", seconds) for version, seconds in brokers.items()]
    for level, what in LEVELS.items():
        command = ["verify", str(store), "--level", str(level), "-o", "json"]
        found = [run(command) for _ in range(runs)]
        rows.append(row(what, statistics.median(_document(one)["seconds"] for one in found), peak_memory(command)))
        rows.append(row(f"{what}, whole command", statistics.median(one.seconds for one in found)))
    for what, options in {"dump -o jsonl": [], "dump --key, few match": ["--key", "order-4711"]}.items():
        command = ["dump", str(store), "-o", "jsonl", *options]
        rows.append(row(f"{what}, whole command", median_seconds(command, runs), peak_memory(command)))
    return rows


def _document(found: Run) -> Any:
    return json.loads(found.out)
