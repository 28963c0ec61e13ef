"""The stores that are measured: 1 GiB written by the real 4.9.7, which then died, so that a start recovers them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.command import cpu_of_ended
from tests.real_store.harness import BROKER_GEOMETRY, Geometry, LoadReport, RealRocketMQ

WRITER = "4.9.7"
# bodies in bytes -> messages: the log stays just below 1 GiB
BODY_SIZES = {1024: 830_000, 100: 3_300_000}
KEYED_MESSAGES, KEYS = {1024: 3_300_000, 100: 14_000_000}, 2  # logs of 3.7 GiB


def keyed_store(work: Path, body_size: int = 1024) -> Path:
    """A store with two keys a message, that the real broker has shut down; written once."""
    store = work / f"keyed-{body_size}"
    if not store.exists():
        print(f"bench: {WRITER} writes {store}", file=sys.stderr, flush=True)
        making = work / f"keyed-{body_size}.making"
        shutil.rmtree(making, ignore_errors=True)
        RealRocketMQ(WRITER, timeout=600, timed=True).put(
            making, KEYED_MESSAGES[body_size], body_size=body_size, key_words=KEYS
        )
        making.rename(store)
    return store


def written_store(work: Path, body_size: int) -> Path:
    """The store with these bodies; written once."""
    store = work / f"{body_size}-bytes"
    if not store.exists():
        print(f"bench: {WRITER} writes {store}", file=sys.stderr, flush=True)
        making = work / f"{body_size}-bytes.making"
        shutil.rmtree(making, ignore_errors=True)
        RealRocketMQ(WRITER, timed=True).put(making, BODY_SIZES[body_size], body_size=body_size, crash=True)
        making.rename(store)
    return store


class Load(NamedTuple):
    """The load of a store by a real broker: its own report, and the cost of its process.

    `seconds` and `cpu` (of all threads) count from the start of the JVM to its end.
    """

    report: LoadReport
    seconds: float
    cpu: float


def load_seconds(store: Path, version: str, geometry: Geometry = BROKER_GEOMETRY) -> float:
    """How long the real broker of a version recovers a copy of the store.

    Raises RuntimeError when it does not load it.
    """
    return load_of_copy(store, version, geometry).report.seconds


def dispatch_seconds(store: Path, version: str) -> float:
    """How long it loads a copy without queues and index, and dispatches the whole log.

    Raises RuntimeError when it does not load it.
    """
    load = load_of_copy(store, version, BROKER_GEOMETRY, start=True, without=("consumequeue", "index"))
    return load.report.seconds


def copy_without(store: Path, copy: Path, without: tuple[str, ...]) -> None:
    """A copy but for these parts; what is a hole in a file stays one, as brokers leave it."""
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(store), str(copy)], check=True)
    for name in without:
        shutil.rmtree(copy / name)


def load_of_copy(
    store: Path, version: str, geometry: Geometry, *, start: bool = False, without: tuple[str, ...] = ()
) -> Load:
    """Let the real broker of a version recover a copy of the store, without these parts.

    Raises RuntimeError when it does not load it.
    """
    broker = RealRocketMQ(version, timeout=600, timed=True)
    broker.prepare()
    copy = store.with_name(store.name + ".copy")
    copy_without(store, copy, without)
    try:
        began, cpu_began = time.perf_counter(), cpu_of_ended()
        report = broker.load(copy, start=start, geometry=geometry)
        load = Load(report, time.perf_counter() - began, cpu_of_ended() - cpu_began)
    finally:
        shutil.rmtree(copy)
    if not report.loaded:
        raise RuntimeError(f"{version} does not load {store}")
    return load
