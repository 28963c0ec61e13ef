"""Stores that rmqctl wrote, read by the real RocketMQ: every message, queue, and look-up is what it would have written
itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from tests.conftest import unpack
from tests.interop.readings import Stored, about, read_copies
from tests.interop.written_stores import SCENARIOS, WRITTEN_FOR, assert_the_same, written
from tests.support.time_look_ups import assert_time_look_ups

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", WRITTEN_FOR)
def test_the_real_store_reads_what_we_wrote(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenarios = [scenario for scenario in SCENARIOS if scenario != "533-longtopic" or version[0] == "5"]
    made = {
        scenario: Stored(scenario, written(scenario, WRITTEN_FOR[version], tmp_path / scenario, capsys))
        for scenario in scenarios
    }
    proved: dict[str, dict[str, Any]] = {}
    for abort in (False, True):
        for scenario, answer in read_copies(version, made, abort=abort, start=abort, time_look_ups=True).items():
            if answer == proved.get(scenario):
                continue
            proved[scenario] = answer
            with about(scenario, abort):
                # an abnormal start of 5.5.0 deletes the newest index file, and dispatches the last file of the log
                # alone: also on its own stores
                assert_the_same(made[scenario].root, answer, keys=not (abort and version == "5.5.0"))
                assert_time_look_ups(made[scenario].root, answer, version)


GOLDEN_OF = {
    "4.7.1": ["471-basic", "471-batch", "471-delay", "471-ipv6", "471-tx"],
    "4.9.7": ["497-basic", "497-batch", "497-delay", "497-lmq", "497-tx", "broker-497"],
    "5.3.3": ["533-basic", "533-batch", "533-ipv6", "533-lmq", "533-longtopic", "533-propcrc", "broker-533"],
    "5.5.0": ["550-basic", "550-batch", "550-lmq"],
}


@pytest.mark.parametrize("version", GOLDEN_OF)
def test_the_real_store_reads_what_it_wrote_and_what_we_appended(version: str, tmp_path: Path) -> None:
    lines = tmp_path / "more.jsonl"
    rows = (
        {"topic": "OrderPaid", "queueId": at % 4, "body": f"more {at}", "properties": {"KEYS": f"more-{at}"}}
        for at in range(400)
    )
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stores = {name: Stored(name, unpack(name, tmp_path / name)) for name in GOLDEN_OF[version]}
    for stored in stores.values():
        assert run(["append", str(stored.root), "--from", str(lines)]) == 0
        assert run(["verify", str(stored.root)]) == 0
    for name, answer in read_copies(version, stores, start=True, time_look_ups=True).items():
        with about(name):
            assert_the_same(stores[name].root, answer)
            assert_time_look_ups(stores[name].root, answer, version)
            keys = [message["properties"].get("KEYS", "") for message in answer["messages"]]
            assert sum(key.startswith("more-") for key in keys) == 400
