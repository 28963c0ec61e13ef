"""Queues and index made from splits that were read one by one: the same bytes and the same plan as from one scan."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from rmqctl.operations.rebuild.in_parts.rebuild_in_parts import RebuildInParts
from rmqctl.operations.rebuild.rebuild import LogCounts, Rebuild
from rmqctl.operations.rebuild.rebuild_plan import IndexPlan, changes, index_plan, queue_plans
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.spark.scan.cluster_scan import ClusterScan
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, Rmqctl, apply_damage, damage_cases, each_damage, tree_hash, unpack
from tests.support.log_tasks import TasksHere
from tests.support.verified_by_tasks import SPLIT_SIZE, read_here

CASES = damage_cases()
# position and size of fields in a record
FIELDS = {"QUEUEID": (12, 4), "QUEUEOFFSET": (20, 8), "SYSFLAG": (36, 4), "STORETIMESTAMP": (56, 8)}
IN_PARTS = "rmqctl.operations.rebuild.in_parts.rebuild_in_parts"


class Made(NamedTuple):
    tree: str
    plan: list[dict[str, Any]]
    index_plan: IndexPlan | None
    full_until: int
    todo: list[dict[str, Any]]
    unchanged: list[tuple[str, int]]
    left_out: dict[str, int]
    log: LogCounts
    index_is_wrong: bool


def made(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> Made:
    """What a rebuild leaves in `staging`, and what it plans."""
    audit = rebuild.begin_audit()
    rebuild.run()
    rebuild.check()
    if audit is not None:
        audit.finish()
    return Made(
        tree_hash(staging),
        [queue.to_json() for queue in queue_plans(rebuild, store)],
        index_plan(rebuild, store),
        rebuild.result.index.full_until,
        [change.to_json() for change in changes(rebuild, store, staging)],
        sorted(rebuild.result.unchanged),
        rebuild.result.left_out,
        rebuild.result.log,
        audit is not None and bool(audit.findings),
    )


def same_by_splits(root: Path, folder: Path, split_size: int = SPLIT_SIZE, *, all_topics: bool = False) -> bool:
    """Whether the driver and the tasks write the same as one process; ranges of queues have one file."""
    selection = Selection(all_topics=all_topics)
    with closing(ReadOnlyStore(root)) as store, patch(f"{IN_PARTS}.RANGE_UNITS", 1):
        one = made(Rebuild(store, selection, folder / "one"), store, folder / "one")
        scan = ClusterScan(read_here, store.commit_log, root, split_size).scan
        by_driver = made(Rebuild(store, selection, folder / "splits", scan=scan), store, folder / "splits")
        tasks = TasksHere(store, root, split_size)
        by_tasks = made(RebuildInParts(store, selection, folder / "parts", tasks), store, folder / "parts")
        dry = RebuildInParts(store, selection, None, TasksHere(store, root, split_size))
        dry.run()
        assert dry.result.index.full_until == one.full_until
        assert tasks.forgotten
    return one == by_driver == by_tasks


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    assert same_by_splits(unpack(name, tmp_path), tmp_path)


@each_damage()
def test_every_damage_case(name: str, tmp_path: Path) -> None:
    root = unpack(CASES[name]["base"], tmp_path)
    apply_damage(root, CASES[name]["ops"])
    assert same_by_splits(root, tmp_path, all_topics=True)


@pytest.mark.parametrize("split_size", [2_000, 65_535, 65_536, 65_537, 10**9])
def test_splits_of_any_size(split_size: int, tmp_path: Path) -> None:
    assert same_by_splits(unpack("broker-533", tmp_path), tmp_path, split_size)


def test_many_ranges_of_one_queue(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A pile has several ranges of a queue, also such as do not follow each other."""
    root, lines = tmp_path / "store", tmp_path / "lines"
    lines.write_text("".join(json.dumps({"topic": "a", "queueId": n % 2, "body": "x"}) + "\n" for n in range(3000)))
    sizes = ["--commitlog-file-size", "1048576", "--consumequeue-file-size", "1000"]
    options = ["--create", *sizes, "--from", lines]
    assert rmqctl("append", root, *options).code == 0
    assert same_by_splits(root, tmp_path, 20_000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("QUEUEID", 3 - 2**31),
        ("QUEUEOFFSET", 2**22),
        ("QUEUEOFFSET", -5),
        ("QUEUEOFFSET", 2**58),
        ("STORETIMESTAMP", 2**62),
    ],
)
def test_one_damaged_field(field: str, value: int, tmp_path: Path) -> None:
    """No CRC covers these fields; the other queues of the topic stay."""
    root = unpack("533-basic", tmp_path)
    with closing(ReadOnlyStore(root)) as store:
        log = next(iter(store.commit_log.queue.files)).path
        unit = store.unit("OrderPaid", 3, 5)
        first = store.commit_log.min_offset
    assert unit is not None
    record = bytearray(log.read_bytes())
    position, size = FIELDS[field]
    for at in (unit.physical_offset, *([first] if field == "STORETIMESTAMP" else [])):
        record[at + position : at + position + size] = value.to_bytes(size, "big", signed=True)
    log.write_bytes(record)
    assert same_by_splits(root, tmp_path)


@pytest.mark.parametrize("field", ["topic", "SYSFLAG"])
def test_a_flipped_bit_keeps_a_last_message_from_its_queue(field: str, tmp_path: Path) -> None:
    """Its queue keeps the unit, also if tasks build the queues."""
    root = unpack("533-basic", tmp_path)
    with closing(ReadOnlyStore(root)) as store:
        last = store.queues["OrderPaid", 3].last()
        assert last is not None
        file = store.commit_log.queue.find(last.physical_offset)
        assert file is not None
        path, begin = file.path, last.physical_offset - file.file_from_offset
    log = bytearray(path.read_bytes())
    if field == "topic":
        log[log.index(b"OrderPaid", begin)] ^= 0x10
    else:
        position, size = FIELDS[field]
        log[begin + position + size - 1] ^= 4
    path.write_bytes(log)
    assert same_by_splits(root, tmp_path)
    with closing(ReadOnlyStore(root)) as store:
        rebuild = RebuildInParts(store, Selection(), None, TasksHere(store, root, SPLIT_SIZE))
        rebuild.run()
    (counts,) = (counts for counts in rebuild.result.queues if counts.key == ("OrderPaid", 3))
    assert (counts.max_offset, counts.strays) == (last.queue_offset + 1, 1)
