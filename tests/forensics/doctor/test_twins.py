"""Two messages with one queue offset are named as that, in ordinary queues and in light ones."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Rmqctl

Golden = Callable[[str], Path]
UNIT = 20


def the_cause(store: Path, rmqctl: Rmqctl) -> dict[str, Any]:
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert cause["code"] == "queue-twins"
    return dict(cause)


def without_unit(folder: Path, number: int, count: int) -> None:
    """The queue as a broker writes it that gives the message at `number` no place."""
    files = sorted(folder.iterdir())
    raw, size = b"".join(file.read_bytes() for file in files), files[0].stat().st_size
    raw = raw[: number * UNIT] + raw[(number + 1) * UNIT : count * UNIT]
    raw = raw.ljust(size * len(files), b"\0")
    for at, file in enumerate(files):
        file.write_bytes(raw[at * size : (at + 1) * size])


def test_the_second_of_two_messages_with_one_number(golden: Golden, rmqctl: Rmqctl) -> None:
    """RocketMQ's issue 2865: all later messages of the queue have one less, as the broker numbered them."""
    store, twin = golden("497-basic"), 20
    rows = [row for row in rmqctl("dump", store, "--topic", "OrderPaid", "-o", "jsonl").rows() if row["queueId"] == 1]
    for row in rows[twin:]:
        file = store / row["path"]
        raw = bytearray(file.read_bytes())
        struct.pack_into(">q", raw, row["physicalOffset"] - int(file.name) + 20, row["queueOffset"] - 1)
        file.write_bytes(raw)
    without_unit(store / "consumequeue" / "OrderPaid" / "1", twin, len(rows))
    cause, at = the_cause(store, rmqctl), rows[twin]["physicalOffset"]
    assert f"physical offset {at}" in cause["summary"]
    dumping = f"rmqctl dump {store} --from-offset {at} --to-offset {at + 1} --body base64 -o jsonl"
    assert cause["next"] == f"{dumping} | rmqctl append {store} --from -"
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-c", cause["next"]], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = rmqctl("queue", store, "OrderPaid", 1, "-o", "jsonl").rows()
    assert len(found) == len(rows)  # the second is served at the end


@pytest.mark.parametrize("has_unit", [True, False])
def test_the_second_of_two_messages_of_a_light_queue(has_unit: bool, golden: Golden, rmqctl: Rmqctl) -> None:
    """RocketMQ's issue 7511: number 20 of %LMQ%all says 19, as its predecessor does."""
    store = golden("497-lmq")
    log = store / "commitlog" / f"{0:020d}"
    raw = log.read_bytes()
    said = b"INNER_MULTI_QUEUE_OFFSET\x01"
    at = raw.index(said + b"5,20", 48419) + len(said)
    log.write_bytes(raw[:at] + b"5,19" + raw[at + 4 :])
    if not has_unit:
        without_unit(store / "consumequeue" / "%LMQ%all" / "0", 20, 84)
    cause = the_cause(store, rmqctl)
    assert "consumequeue/%LMQ%all/0 (physical offset 48419)" in cause["summary"]
