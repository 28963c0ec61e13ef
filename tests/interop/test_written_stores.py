"""Stores that rmqctl wrote, read by the real RocketMQ: every message, queue, and look-up is what it would have written
itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.cli.test_golden import host
from tests.conftest import unpack
from tests.interop.readings import Stored, about, read_copies
from tests.store.engine.test_dispatcher import geometry
from tests.support.time_look_ups import assert_time_look_ups

pytestmark = pytest.mark.interop

PROFILE_OF = {"4.7.1": "4.7", "4.9.7": "4.9", "5.3.3": "5.3"}
WRITTEN_FOR = PROFILE_OF | {"5.5.0": "5.4"}
# V2 records (longtopic) are for 5.x alone
SCENARIOS = [
    "497-basic",
    "471-batch",
    "471-ipv6",
    "497-tx",
    "497-delay",
    "497-lmq",
    "broker-497",
    "533-longtopic",
    "533-propcrc",
]


def written(scenario: str, profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store of our own making with the scenario's messages: dump of the golden one, appended."""
    golden = unpack(scenario, tmp_path)
    assert run(["dump", str(golden), "--body", "base64", "-o", "jsonl"]) == 0
    lines = tmp_path / "messages.jsonl"
    lines.write_text(capsys.readouterr().out)
    made = tmp_path / "made"
    size = geometry(scenario)
    options = {
        "--profile": profile,
        "--commitlog-file-size": size.commitlog_file_size,
        "--consumequeue-file-size": size.consumequeue_file_size,
        "--index-slots": size.index_slots,
        "--index-entries": size.index_entries,
        "--batch": 5 if scenario == "471-batch" else 1,
    }
    words = [str(word) for pair in options.items() for word in pair]
    crc = ["--property-crc"] if scenario == "533-propcrc" and profile[0] == "5" else []
    assert run(["append", str(made), "--create", *words, *crc, "--from", str(lines), "--with-system-topics"]) == 0
    assert run(["verify", str(made)]) == 0
    capsys.readouterr()
    return made


def assert_the_same(made: Path, answer: dict[str, Any], *, keys: bool = True) -> None:
    """The real store's answer against our own reading of what we wrote; `keys`: what it finds by the index, too."""
    store = ReadOnlyStore(made)
    assert answer["load"] is True
    assert answer["maxPhyOffset"] == store.commit_log.end()[0]
    ours = {key: queue for key, queue in store.queues.items() if not key[0].startswith("%LMQ%")}
    theirs = {(queue["topic"], queue["queueId"]): queue for queue in answer["queues"] if queue["maxOffset"]}
    assert {key for key in theirs if not key[0].startswith("%LMQ%")} == set(ours)
    for key, queue in ours.items():
        units = [[unit.queue_offset, unit.physical_offset, unit.size] for unit in queue.units(0, queue.max_offset)]
        assert (theirs[key]["minOffset"], theirs[key]["maxOffset"]) == (queue.min_offset(0), queue.max_offset)
        assert theirs[key]["entries"] == units
    assert answer["messages"]
    for message in answer["messages"]:
        decoded = store.commit_log.message_at(message["physicalOffset"])
        assert decoded is not None
        assert (decoded.topic, decoded.queue_offset, decoded.msg_id) == (
            message["topic"],
            message["queueOffset"],
            message["msgId"],
        )
        assert (decoded.body_crc, decoded.flag, decoded.sys_flag) == (
            message["bodyCrc"],
            message["flag"],
            message["sysFlag"],
        )
        if not message["cqTopic"].startswith("%LMQ%"):
            assert decoded.properties == message["properties"]
        assert host(str(decoded.born_host)) == host(message["bornHost"])
    assert answer["keyQueries"]
    for asked in answer["keyQueries"] if keys else ():
        # the real store gives what has the key's hash: by chance another message, too, since its UNIQ_KEY is random
        same_hash = store.index.phy_offsets(asked["topic"], asked["key"])
        assert same_hash[-asked["max"] :] == asked["physicalOffsets"]
        with_key = [message.physical_offset for message in store.by_key(asked["topic"], asked["key"])]
        assert with_key == [offset for offset in same_hash if (asked["topic"], asked["key"]) in names_at(store, offset)]


def names_at(store: ReadOnlyStore, offset: int) -> set[tuple[str, str]]:
    """The message's topic with each of its keys."""
    message = store.commit_log.message_at(offset)
    assert message is not None
    properties = message.properties
    return {(message.topic, key) for key in (properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")) if key}


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
