"""Queues that a store has in files and in RocksDB are compared, and a start fills the database anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.forensics.audit.databases.queue_database import audit_queue_database
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, Rmqctl, tree_hash
from tests.support.databases import change_database, offset_row, unit_row, write_database
from tests.support.file_edits import write_at

TOPIC = "OrderPaid"
STORES = {"550-combined-samedir": "consumequeue", "550-combined-separate": "consumequeue_rocksdb"}


def found_in(root: Path, **said: Any) -> list[tuple[str, str | None, int | None, int]]:
    store = ReadOnlyStore(root, BrokerConf(**said))
    found = [(one.code, one.topic, one.queue_offset, one.count) for one in audit_queue_database(store)]
    store.close()
    return found


def row(queue_offset: int) -> bytes:
    return unit_row(TOPIC, 1, queue_offset, (0, 0, 0))[0]


def gone(database: Path) -> None:
    for file in database.iterdir():
        if file.is_file() and file.name != "LOCK":
            file.unlink()


def of_light_topics(database: Path) -> None:
    gone(database)
    (database / "LOCK").unlink()
    write_database(database, {"offset": dict([offset_row("%LMQ%$parent$lite", 0, 3)])})


DAMAGES: dict[str, tuple[Callable[[Path], None], list[tuple[str, str | None, int | None, int]]]] = {
    "whole": (lambda _: None, []),
    "a unit is missing": (lambda one: change_database(one, "default", {row(7): None}), [("7", TOPIC, 7, 1)]),
    "a unit leads elsewhere": (
        lambda one: change_database(one, "default", dict([unit_row(TOPIC, 1, 3, (1, 2, 3))])),
        [("3", TOPIC, 3, 1)],
    ),
    "behind": (lambda one: change_database(one, "offset", dict([offset_row(TOPIC, 1, 9)])), [("10", TOPIC, 10, 12)]),
    "ahead": (lambda one: change_database(one, "offset", dict([offset_row(TOPIC, 1, 25)])), [("22", TOPIC, 22, 4)]),
    "a queue is missing": (
        lambda one: change_database(one, "offset", {offset_row(TOPIC, 1, 0)[0]: None}),
        [("0", TOPIC, 0, 22)],
    ),
    "messages are hidden": (
        lambda one: change_database(one, "offset", dict([offset_row(TOPIC, 1, 5, "min")])),
        [("0", TOPIC, 0, 5)],
    ),
    "only light topics are written twice": (of_light_topics, []),
}


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_each_difference_is_found(damage: str, name: str, golden: Golden) -> None:
    root = golden(name)
    lay, expected = DAMAGES[damage]
    lay(root / STORES[name])
    before = tree_hash(root)
    assert found_in(root) == [("queue-database-differs", *rest) for _, *rest in expected]
    assert tree_hash(root) == before


@pytest.mark.parametrize("name", STORES)
def test_without_a_database(name: str, golden: Golden) -> None:
    """Where there never was one, that matters only to a broker that reads it."""
    root = golden(name)
    gone(root / STORES[name])
    assert sum(count for *_, count in found_in(root)) == 150
    (root / STORES[name] / "LOCK").unlink()
    assert found_in(root, queues_in_both=True) == []
    assert len(found_in(root, queues_in_both=True, reads_queue_database=True)) == 16


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("damage", ["behind", "a table", "the database", "a queue in both"])
def test_recover_lets_a_start_fill_the_database(damage: str, name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden(name)
    database, queue = root / STORES[name], next((root / "consumequeue" / TOPIC / "1").iterdir())
    units = queue.read_bytes()
    if damage in ("behind", "a queue in both"):
        change_database(database, "offset", dict([offset_row(TOPIC, 1, 9)]))
    elif damage == "the database":
        gone(database)
    elif damage == "a table":
        write_at(max(database.glob("*.sst"), key=lambda file: file.stat().st_size), 40, bytes(20))
    if damage == "a queue in both":
        queue.unlink()
    before = tree_hash(root)
    diagnosis = rmqctl("doctor", root, "-o", "json")
    assert diagnosis.code == (4 if damage == "a table" else 1)
    assert f"rmqctl recover {root} --yes" in [cause["next"] for cause in diagnosis.document()["causes"]]
    recovered = rmqctl("recover", root, "--yes", "-o", "json")
    assert (recovered.code, recovered.document()["actions"][-1]["action"]) == (3, "refill-queues")
    assert (root / "abort").exists()
    assert not (root / "checkpoint").exists()
    assert [file.name for file in database.iterdir() if file.is_file()] == ["LOCK"]
    assert queue.read_bytes() == units
    assert rmqctl("recover", root, "--yes").out.endswith("nothing to do\n")
    assert [cause["code"] for cause in rmqctl("doctor", root, "-o", "json").document()["causes"]] == ["broker-died"]
    assert rmqctl("undo", root, "--yes").code == 0
    assert tree_hash(root) == before


def test_truncate_does_so_too(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("550-combined-samedir")
    at = [json.loads(line)["physicalOffset"] for line in rmqctl("dump", root, "-o", "jsonl").out.splitlines()][100]
    truncated = rmqctl("truncate", root, "--to", at, "--yes", "-o", "json")
    assert (truncated.code, truncated.document()["actions"][-1]["action"]) == (3, "refill-queues")
    assert len(rmqctl("dump", root, "-o", "jsonl").rows()) == 100


def test_rebuild_does_so_too(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("550-combined-separate")
    gone(root / "consumequeue_rocksdb")
    assert rmqctl("rebuild", root, "queues", "--topic", TOPIC).code == 2
    rebuilt = rmqctl("rebuild", root, "queues", "--yes", "-o", "json")
    assert (rebuilt.code, [step["action"] for step in rebuilt.document()["actions"]]) == (3, ["refill-queues"])
    assert rmqctl("rebuild", root, "queues", "--yes").code == 0
    assert rmqctl("verify", root, "--level", "2").code == 0


@pytest.mark.parametrize("name", STORES)
def test_a_damaged_manifest_is_named_in_either_folder(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden(name)
    manifest = next((root / STORES[name]).glob("MANIFEST-*"))
    write_at(manifest, 10, bytes([manifest.read_bytes()[10] ^ 0xFF]))
    codes = {cause["code"] for cause in rmqctl("doctor", root, "-o", "json").document()["causes"]}
    assert codes == {"database-damaged"}
