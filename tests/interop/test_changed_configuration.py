"""Files of config/ that rmqctl wrote, read by a real broker: its consumers go on where they were told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.timestamp import rfc3339
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, unpack
from tests.real_store.harness import Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

GEOMETRY = Geometry(commitlog_file_size=256 * 1024, queue_file_units=300, index_slots=1000, index_entries=4000)
OF_THE_STORES_OWN_API = Geometry(64 * 1024, 50, 100, 400)
# the clients of 4.7.1 fail on messages without a body, as the other stores of 4.7.1 have them
STORES = (("broker-497", "4.7.1"), ("broker-497", "4.9.7"), ("broker-533", "5.3.3"), ("broker-550", "5.5.0"))
# timers of the store have files of other sizes than a broker's
SETTINGS = {"timerWheelEnable": "false", "mapperFileSizeBatchConsumeQueue": "920"}
COMPACTED = "cmpt"  # a client gets only the newest message of each key


def ends(store: Path) -> dict[str, dict[int, int]]:
    """The end of each queue of the topics of producers."""
    found: dict[str, dict[int, int]] = {}
    for (topic, queue_id), queue in sorted(ReadOnlyStore(store).queues.items()):
        if not topic.startswith(("%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_", COMPACTED)):
            found.setdefault(topic, {})[queue_id] = queue.max_offset
    return found


def goals(store: Path) -> dict[int, str]:
    """Where the group is to go on: another kind of goal for each queue."""
    unit = next(ReadOnlyStore(store).queues["orders", 3].units(7, 8))
    found = ReadOnlyStore(store).commit_log.message_at(unit.physical_offset)
    assert found is not None
    return {0: "earliest", 1: "10", 2: "latest", 3: rfc3339(found.store_timestamp) or ""}


@pytest.mark.parametrize(("name", "version"), STORES)
def test_groups_go_on_where_they_are_told(
    name: str, version: str, golden: Callable[[str], Path], rmqctl: Rmqctl
) -> None:
    """Topics and groups are rebuilt from the store: what the broker had is broken, as is its .bak."""
    store = golden(name)
    for file in ("topics.json", "subscriptionGroup.json"):
        (store / "config" / file).write_bytes(b"{")
        (store / "config" / f"{file}.bak").write_bytes(b"\0\0")
        assert rmqctl("config", "restore", store, file, "--yes").code == 0
    end = ends(store)
    expected = set_offsets(store, rmqctl)
    assert expected[2] == end["orders"][2]
    left = {queue: list(range(expected[queue], end["orders"][queue])) for queue in expected}
    others = [(f"reader-of-{other}", other, sum(end[other].values())) for other in end if other != "orders"]
    consumers = [("billing", "orders", sum(map(len, left.values()))), *others]
    rows = RealRocketMQ(version, timeout=120).consume(store, consumers, geometry=GEOMETRY, settings=SETTINGS)
    got = {row["queueId"]: sorted(row["offsets"]) for row in rows if row["group"] == "billing"}
    assert got == {queue: offsets for queue, offsets in left.items() if offsets}
    served = {(row["topic"], row["queueId"]): sorted(row["offsets"]) for row in rows if row["group"] != "billing"}
    assert served == {
        (other, queue): list(range(last)) for _, other, _ in others for queue, last in end[other].items() if last
    }


@pytest.mark.parametrize(
    ("backup", "name", "version"),
    [
        (b"", "broker-497", "4.7.1"), (b"", "broker-550", "5.5.0"), (b"{", "broker-497", "4.9.7"),
        (b"{", "broker-550", "5.5.0"), (b"[]", "broker-533", "5.3.3"), (b"[]", "broker-550", "5.5.0"),
    ],
)  # fmt: skip
def test_a_broker_starts_with_an_empty_backup(
    backup: bytes, name: str, version: str, golden: Callable[[str], Path], rmqctl: Rmqctl
) -> None:
    """As a full disk leaves it: then without topics. A .bak that is not JSON ends the start, as rmqctl says; [] is
    valid up to 5.3, as is a .bak of blanks. Each by one version of those with fastjson, and by 5.5.0 with fastjson2:
    the parser alone makes the difference.
    """
    store = golden(name)
    refused = backup == b"{" or (backup == b"[]" and version == "5.5.0")
    (store / "config" / "topics.json").write_bytes(b"")
    (store / "config" / "topics.json.bak").write_bytes(backup)
    if backup == b"[]" and not refused:
        (store / "config" / "delayOffset.json").write_bytes(b"{")
        (store / "config" / "delayOffset.json.bak").write_bytes(b" \n")
    said = rmqctl("recover", store, "--dry-run").out
    assert ("the broker does not load this store" in said) == refused
    assert ("config/topics.json and its .bak" in said) == refused
    broker = RealRocketMQ(version, timeout=60)
    if refused:
        with pytest.raises(RuntimeError, match="ended with 1"):
            broker.consume(store, [], geometry=GEOMETRY, settings=SETTINGS)
    else:
        assert broker.consume(store, [], geometry=GEOMETRY, settings=SETTINGS) == []


def set_offsets(store: Path, rmqctl: Rmqctl) -> dict[int, int]:
    """Set an offset of each kind; return them by queue."""
    found: dict[int, int] = {}
    for queue, goal in goals(store).items():
        asked: tuple[Any, ...] = ("billing", "orders", queue, "--to", goal, "--yes", "-o", "json")
        rows = rmqctl("config", "set-offset", store, *asked).document()["queues"]
        found |= {row["queueId"]: row["newOffset"] for row in rows}
    assert 0 < found[3] <= 7
    return found


def test_a_broker_starts_when_queue_types_are_restored(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """5.x does not load a topic whose queues have the other type."""
    store = unpack("queues/533-batchcq", tmp_path)
    assert rmqctl("config", "restore", store, "topics.json", "--from", "store", "--yes").code == 0
    topics = store / "config" / "topics.json"
    good = topics.read_text()
    topics.write_text(good.replace("BatchCQ", "SimpleCQ"))
    broker = RealRocketMQ("5.3.3", timeout=60)
    with pytest.raises(RuntimeError, match="does not load the store"):
        broker.consume(store, [], geometry=OF_THE_STORES_OWN_API, settings=SETTINGS)
    assert rmqctl("config", "restore", store, "topics.json", "--from", "store", "--yes").code == 0
    assert broker.consume(store, [], geometry=OF_THE_STORES_OWN_API, settings=SETTINGS) == []
