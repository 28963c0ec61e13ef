"""Single look-ups on a store whose index has 20 million entries, against `rmqctl --help`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np

from rmqctl.format.columns import ENTRIES
from rmqctl.format.index_entry import INDEX_HEADER, key_hash
from tests.bench.command import median_seconds, run
from tests.bench.stores import written_store

SLOTS, COUNT = 5_000_000, 20_000_000
BODY_SIZE = 100


def query_rows(work: Path, runs: int) -> list[list[str]]:
    """A row a look-up."""
    store, topic, key, queue = _store(work)
    commands = {
        "`rmqctl --help`": ["--help"],
        "`query --key`": ["query", str(store), "--topic", topic, "--key", key],
        "`trace --key`": ["trace", str(store), "--key", key],
        "`query --queue --offset`": ["query", str(store), "--topic", topic, "--queue", queue, "--offset", "1000"],
    }
    seconds = median_seconds(commands, 2 * runs + 1)
    first = seconds["`rmqctl --help`"]
    return [[what, f"{found:.3f}", f"{found / first:.2f}"] for what, found in seconds.items()]


def _store(work: Path) -> tuple[Path, str, str, str]:
    """The store, and topic, key and queue of a message in its middle.

    Log and queues are those of the 100-byte store.
    """
    source = written_store(work, BODY_SIZE)
    store = work / "large-index"
    middle = (source / "commitlog" / f"{0:020d}").stat().st_size // 2
    found = run(["dump", str(source), "--from-offset", str(middle), "--limit", "1", "-o", "jsonl"])
    message = json.loads(found.out.splitlines()[0])
    key = message["properties"]["UNIQ_KEY"]
    if not store.exists():
        making = work / "large-index.making"
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(source, making, copy_function=os.link, ignore=shutil.ignore_patterns("index"))
        (making / "index").mkdir()
        end = json.loads(run(["info", str(source), "-o", "json"]).out)["commitLog"]["maxPhyOffset"]
        wanted = key_hash(message["topic"], key)
        _write_index(making / "index" / "20261121000000000", wanted, message["physicalOffset"], end)
        making.rename(store)
    return store, message["topic"], key, str(message["queueId"])


def _write_index(path: Path, wanted_hash: int, physical_offset: int, end: int) -> None:
    """A full index file with chains as a broker makes them; one entry leads to the message, the others have random
    keys. The index covers the log up to `end`.
    """
    random = np.random.default_rng(1)
    hashes = random.integers(0, 2**31 - 1, COUNT, dtype=np.int64)
    hashes[COUNT // 2] = wanted_hash
    entries = np.zeros(COUNT, ENTRIES)
    entries["keyHash"] = hashes
    entries["phyOffset"] = np.linspace(0, end, COUNT).astype(np.int64)
    entries["phyOffset"][COUNT // 2] = physical_offset
    slots = hashes[1:] % SLOTS  # entry 0 is never used
    order = np.argsort(slots, kind="stable")
    same = slots[order][1:] == slots[order][:-1]
    previous = np.zeros(COUNT, np.int64)
    previous[order[1:][same] + 1] = order[:-1][same] + 1
    entries["prevIndex"] = previous
    heads = np.zeros(SLOTS, ">i4")
    heads[slots[order]] = order + 1
    header = INDEX_HEADER.struct.pack(0, 0, int(entries["phyOffset"][1]), end, int(np.count_nonzero(heads)), COUNT)
    path.write_bytes(header + heads.tobytes() + entries.tobytes())
