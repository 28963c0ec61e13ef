"""Beside a writer, `verify` has no finding on what is only not finished."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, apply_damage, damage_cases, unpack
from tests.support.lock_holder import lock_held

ROUNDS = 4


def test_no_finding_beside_an_append(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """An `append` in another process gets lines one by one meanwhile."""
    store = unpack("497-basic", tmp_path)
    words = [sys.executable, "-m", "rmqctl", "append", str(store), "--from", "-"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as writer:
        stop = threading.Event()

        def write() -> None:
            assert writer.stdin is not None
            for number in range(100_000):
                line = {"topic": f"t{number % 5}", "queueId": number % 3, "body": "x" * (number % 700)}
                writer.stdin.write(json.dumps(line | {"bodyEncoding": "utf8"}) + "\n")
                writer.stdin.flush()
                if stop.wait(0.001):
                    break
            writer.stdin.close()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            while ReadOnlyStore(store).lock_holder() is None:
                time.sleep(0.05)
            results = [rmqctl("verify", store, "-o", "json") for _ in range(ROUNDS)]
        finally:
            stop.set()
            thread.join()
    assert writer.returncode == 0
    assert [(result.code, result.document()["findings"]) for result in results] == [(0, [])] * ROUNDS
    assert any("has the store open" in result.err for result in results)
    assert rmqctl("verify", store).code == 0


@pytest.mark.parametrize("dispatched", [True, False])
def test_the_torn_last_record_of_a_log_that_is_written_is_no_damage_before_its_dispatch(
    dispatched: bool, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """A writer stores a message whole before it gives it a unit."""
    store = unpack("497-basic", tmp_path)
    apply_damage(store, damage_cases()["497-basic--tail-torn"]["ops"])
    alone = rmqctl("verify", store, "-o", "json")
    assert alone.code == 1
    torn = alone.document()["findings"][0]["physicalOffset"]
    for path in () if dispatched else store.glob("consumequeue/*/*/*"):
        units = bytearray(path.read_bytes())
        for at in range(0, len(units), CQ_UNIT.size):
            if CQ_UNIT.struct.unpack_from(units, at)[0] >= torn:
                units[at : at + CQ_UNIT.size] = bytes(CQ_UNIT.size)
        path.write_bytes(units)
    with lock_held(store):
        found = rmqctl("verify", store)
    assert (found.code, "were not finished at the first look" in found.err) == (int(dispatched), not dispatched)


def test_damage_of_a_log_that_is_written_stays_damage(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    apply_damage(store, damage_cases()["497-basic--body-flip-first-normal"]["ops"])
    with lock_held(store):
        assert "bad-body-crc" in {one["code"] for one in rmqctl("verify", store, "-o", "json").document()["findings"]}
