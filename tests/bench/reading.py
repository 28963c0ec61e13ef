"""verify, recover --dry-run and dump over a whole store: rates, and ratios to the brokers and the machine's limits in
the same run.

Everything is measured in rounds, one after the other, and the median of each counts: a machine that is slow for a while
is slow for all of them. The brokers, which take longest, are measured in the first round and the last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.command import Run, peak_memory, run
from tests.bench.limits import crc32_rate, page_cache_rate
from tests.bench.stores import load_seconds

LEVELS = {1: "verify --level 1", 2: "verify --level 2", 3: "verify"}
RECOVER = "recover --dry-run"
DUMPS = {"dump -o jsonl": [], "dump --key, few match": ["--key", "order-4711"]}
BROKERS = ("4.9.7", "5.3.3")
PAGE_CACHE, CRC = "page cache, one thread", "and CRC-32, one thread"


def reading_rows(store: Path, body_size: int, runs: int) -> list[list[str]]:
    """The table's rows for one store; verify's and recover's seconds are their own, dump's those of
    the whole command.
    """
    for command in (["verify", str(store)], _recover(store)):
        run(command)  # compiles, where this is the first run; fills the page cache
    whole = _document(run(["verify", str(store), "-o", "json"]))
    size, records = whole["bytesScanned"], whole["messages"]
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(runs):
        _round(store, size, seconds, with_brokers=number in (0, runs - 1))
    medians = {what: median(found) for what, found in seconds.items()}
    peaks = {what: peak_memory(_verify(store, level)) for level, what in LEVELS.items()}
    peaks[RECOVER] = peak_memory(_recover(store))
    peaks |= {_whole(what): peak_memory(_dump(store, options)) for what, options in DUMPS.items()}
    rows = []
    for what, found in medians.items():
        ratios = (f"{medians[_recovery(version)] / found:.1f}" for version in BROKERS)
        limits = (f"{medians[limit] / found:.2f}" for limit in (PAGE_CACHE, CRC))
        memory = f"{peaks[what] / 1e6:.0f}" if what in peaks else ""
        rows.append(
            [
                str(body_size),
                what,
                f"{found:.2f}",
                f"{size / found / 1e9:.2f}",
                f"{records / found:,.0f}",
                *ratios,
                *limits,
                memory,
            ]
        )
    return rows


def _round(store: Path, size: int, seconds: dict[str, list[float]], *, with_brokers: bool) -> None:
    """Measure everything once; the order of the keys is the table's."""
    log = store / "commitlog" / f"{0:020d}"
    seconds[PAGE_CACHE].append(size / page_cache_rate(log, size, 1))
    seconds[CRC].append(size / crc32_rate(log, size, 1))
    for version in BROKERS if with_brokers else ():
        seconds[_recovery(version)].append(load_seconds(store, version))
    for level, what in LEVELS.items():
        found = run(_verify(store, level))
        seconds[what].append(_document(found)["seconds"])
        seconds[_whole(what)].append(found.seconds)
    found = run(_recover(store))
    seconds[RECOVER].append(_document(found)["seconds"])
    seconds[_whole(RECOVER)].append(found.seconds)
    for what, options in DUMPS.items():
        seconds[_whole(what)].append(run(_dump(store, options), keep_output=False).seconds)


def _verify(store: Path, level: int) -> list[str]:
    return ["verify", str(store), "--level", str(level), "-o", "json"]


def _recover(store: Path) -> list[str]:
    return ["recover", str(store), "--dry-run", "-o", "json"]


def _dump(store: Path, options: list[str]) -> list[str]:
    return ["dump", str(store), "-o", "jsonl", *options]


def _whole(what: str) -> str:
    return f"{what}, whole command"


def _recovery(version: str) -> str:
    return f"recovery by the real {version}"


def _document(found: Run) -> Any:
    return json.loads(found.out)
