"""Appending: the engine's put_message by one thread, and `append --from`, beside the real broker's putMessage of the
same run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.command import median_seconds
from tests.real_store.harness import RealRocketMQ

MESSAGES = 200_000
WRITER = """
import sys, time
from pathlib import Path
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.host import Host
from rmqctl.format.profile import PROFILE_4_9
from rmqctl.store.write.commit_log_writer import PutSettings
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore

root, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
store = MessageStore.create(root, PutSettings(PROFILE_4_9), Geometry())
born, host, body = Host(bytes([10, 1, 2, 3]), 34567), Host(bytes([192, 168, 7, 9]), 10911), bytes(size)
keys = [{"TAGS": f"Tag{n % 3}", "KEYS": f"order-{n}", "UNIQ_KEY": f"{n:032X}"} for n in range(count)]
made = [MessageExtBrokerInner(f"topic-{n % 4}", body, keys[n], born, host, 1, n % 4) for n in range(count)]
began = time.perf_counter()
for message in made:
    store.put_message(message)
store.dispatch()
print(time.perf_counter() - began)
store.close()
"""


class Round(NamedTuple):
    """Seconds of each way; `start` is the whole command with a file without lines."""

    real: float
    put: float
    whole: float
    start: float


def writing_rows(work: Path, body_sizes: list[int], runs: int) -> list[list[str]]:
    """A row a way to append and a body size: messages a second, and the ratio to the real 4.9.7.

    The ways take turns, so that a busy moment of the machine meets all of them.
    """
    rows = []
    nothing = work / "no-messages.jsonl"
    nothing.write_bytes(b"")
    _append_seconds(work, nothing)  # compiles, where this is the first run
    for size in body_sizes:
        lines = _written_lines(work, size)
        rounds = [
            Round(
                _real_seconds(work, size),
                _put_seconds(work, size),
                _append_seconds(work, lines),
                _append_seconds(work, nothing),
            )
            for _ in range(runs)
        ]
        theirs = median(one.real for one in rounds)
        for what, seconds in (
            ("real 4.9.7 putMessage", theirs),
            ("put_message, dispatched", median(one.put for one in rounds)),
            ("append --from, own seconds", median(one.whole - one.start for one in rounds)),
            ("append --from, whole command", median(one.whole for one in rounds)),
        ):
            rows.append([str(size), what, f"{MESSAGES / seconds:,.0f}", f"{theirs / seconds:.2f}"])
    return rows


def _real_seconds(work: Path, size: int) -> float:
    store = _fresh(work / "put-real")
    return RealRocketMQ("4.9.7", timed=True).put(store, MESSAGES, body_size=size).seconds


def _put_seconds(work: Path, size: int) -> float:
    store = _fresh(work / "put-ours")
    command = [sys.executable, "-c", WRITER, str(store), str(MESSAGES), str(size)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)


def _written_lines(work: Path, size: int) -> Path:
    lines = work / f"messages-{size}.jsonl"
    if not lines.exists():
        rows = (
            {"topic": f"topic-{n % 4}", "queueId": n % 4, "body": "x" * size, "properties": {"KEYS": f"order-{n}"}}
            for n in range(MESSAGES)
        )
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lines


def _append_seconds(work: Path, lines: Path) -> float:
    store = _fresh(work / "append-ours")
    command = ["append", str(store), "--create", "--from", str(lines)]
    return median_seconds({"append": command}, 1)["append"]


def _fresh(store: Path) -> Path:
    shutil.rmtree(store, ignore_errors=True)
    return store
