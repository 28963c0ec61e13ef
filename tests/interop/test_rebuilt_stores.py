"""Stores whose queues and index rmqctl rebuilt, read by the real RocketMQ: it answers as on what brokers wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from tests.conftest import Rmqctl, unpack
from tests.interop.readings import Stored, about, read_copies
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.real_store.ports import held_port
from tests.support.file_edits import write_at
from tests.support.time_look_ups import assert_time_look_ups

pytestmark = pytest.mark.interop

STORES_OF = {
    "4.7.1": ["471-basic", "471-batch", "471-delay", "471-tx", "471-crash"],
    "4.9.7": ["497-basic", "497-delay", "497-lmq", "497-crash", "broker-497"],
    "5.3.3": ["533-basic", "533-lmq", "533-longtopic", "533-crash", "broker-533"],
}

DLEDGER_SIZES = Geometry(commitlog_file_size=1 << 18, queue_file_units=300, index_slots=1000, index_entries=4000)


@pytest.mark.parametrize("version", STORES_OF)
def test_the_real_store_answers_as_before(version: str, tmp_path: Path) -> None:
    """Offsets, units, messages, look-ups by key and by time; from the store as it lay there, and once more with
    `abort`.
    """
    stores: dict[tuple[str, str], Stored] = {}
    for name in STORES_OF[version]:
        before, after = unpack(name, tmp_path / name), tmp_path / name / "rebuilt"
        shutil.copytree(before, after)
        assert run(["rebuild", str(after), "all", "--yes"]) in (0, 3)  # 3: something differed
        shutil.rmtree(after / ".rmqctl")
        stores |= {(name, "before"): Stored(name, before), (name, "after"): Stored(name, after)}
    proved: dict[str, dict[str, Any]] = {}
    for abort in (False, True):
        answers = read_copies(version, stores, abort=abort, start=abort, time_look_ups=True)
        for name in STORES_OF[version]:
            with about(name, abort):
                before_it, after_it = answers[name, "before"], answers[name, "after"]
                assert without_times(after_it, version) == without_times(before_it, version)
                if after_it == proved.get(name):
                    continue
                proved[name] = after_it
                assert_time_look_ups(stores[name, "after"].root, after_it, version)
                assert after_it["load"] is True
                assert after_it["messages"]
                assert after_it["keyQueries"]


def without_times(answer: dict[str, Any], version: str) -> dict[str, Any]:
    """The answer; of 4.x without look-ups by time: it goes by when files were written last, which an archive does not
    keep exactly.
    """
    if version.startswith("5."):
        return answer
    return {
        **answer,
        "queues": [
            {name: value for name, value in queue.items() if not name.startswith("offset")}
            for queue in answer["queues"]
        ],
    }


def test_a_dledger_broker_serves_its_rebuilt_queues(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The queues are as the broker wrote them, and its consumers get every message."""
    root = unpack("broker-550-dledger", tmp_path)
    queues = root / "consumequeue"
    written = {path: path.read_bytes() for path in queues.rglob("0*") if path.is_file()}
    shutil.rmtree(queues / "orders")
    write_at(queues / "events" / "2" / f"{0:020d}", 27, b"\xff")
    assert rmqctl("rebuild", root, "queues", "--yes").code == 3
    assert {path: path.read_bytes() for path in queues.rglob("0*") if path.is_file()} == written
    with held_port() as port:
        peers = f"n0-127.0.0.1:{port}"
    settings = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerPeers": peers, "dLegerSelfId": "n0"}
    consumed = RealRocketMQ("5.5.0", timeout=90).consume(
        root, [("anew", "orders", 61), ("anew2", "events", 12)], geometry=DLEDGER_SIZES, settings=settings
    )
    assert sum(len(row["offsets"]) for row in consumed) == 73
