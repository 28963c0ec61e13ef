"""recover --keep-going: a damaged record in the middle gets a mark, and all the others stay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Rmqctl
from tests.cli.test_recover import CASES, damaged, profile_of, ranges
from tests.conftest import tree_hash, unpack

MARK = int.from_bytes(b"RMQCTL\0\0", "big")
FLIPS = sorted(name for name in CASES if "--body-flip-" in name)
FRAMES = sorted(name for name in CASES if name.endswith(("--magic-flip-last-abnormal", "--size-flip-last", "--magic-zero-last-file-head")))


def dumped(rmqctl: Rmqctl, store: Path) -> dict[int, dict[str, Any]]:
    rows = rmqctl("dump", store, "-o", "jsonl", "--body", "base64").rows()
    return {row["physicalOffset"]: row for row in rows}


@pytest.mark.parametrize("name", FLIPS)
def test_all_messages_but_the_damaged_one_stay(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES[name]
    whole = unpack(case["base"], tmp_path / "whole")
    store = damaged(name, tmp_path / "damaged")
    before = tree_hash(store)
    at = ("--profile", profile_of(case["base"]), "--keep-going")
    plan = rmqctl("recover", store, *at, "--dry-run", "-o", "json").document()
    assert plan["lost"]["records"] == 1
    assert rmqctl("recover", store, *at, "--yes").code == 3
    messages, wanted = dumped(rmqctl, store), dumped(rmqctl, whole)
    assert messages.keys() == wanted.keys()
    changed = [offset for offset, row in messages.items() if row != wanted[offset]]
    assert len(changed) == 1
    mark = messages[changed[0]]
    assert mark["preparedTransactionOffset"] == MARK
    same = ("topic", "queueId", "queueOffset", "size", "storeTimestamp", "tagsCode")
    assert [mark[key] for key in same] == [wanted[changed[0]][key] for key in same]
    assert rmqctl("verify", store).code == 0
    again = rmqctl("recover", store, *at, "--dry-run", "-o", "json").document()
    assert (again["actions"], again["lost"]["records"]) == ([], 0)
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


@pytest.mark.parametrize("name", FRAMES)
def test_a_record_without_a_frame_gets_its_place_from_the_queues(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = CASES[name]
    whole = unpack(case["base"], tmp_path / "whole")
    store = damaged(name, tmp_path / "damaged")
    before = tree_hash(store)
    at = ("--profile", profile_of(case["base"]), "--keep-going")
    assert rmqctl("recover", store, *at, "--yes").code == 3
    messages, wanted = dumped(rmqctl, store), dumped(rmqctl, whole)
    changed = [offset for offset, row in messages.items() if row != wanted.get(offset)]
    assert len(changed) == 1
    assert messages[changed[0]]["preparedTransactionOffset"] == MARK
    assert wanted.keys() == messages.keys()
    assert ranges(rmqctl("queue", store, "-o", "jsonl").rows()) == ranges(rmqctl("queue", whole, "-o", "jsonl").rows())
    assert rmqctl("verify", store).code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_several_files_and_places_at_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("497-basic", tmp_path)
    offsets = list(dumped(rmqctl, store))
    before = tree_hash(store)
    hit = [offsets[20], offsets[100], offsets[101], offsets[102], offsets[200]]
    for offset in hit:
        file = store / "commitlog" / f"{offset // 65536 * 65536:020d}"
        with file.open("r+b") as log:
            log.seek(offset % 65536 + 4)
            log.write(b"\xde\xad\xbe\xef")
    broken = tree_hash(store)
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    messages = dumped(rmqctl, store)
    assert list(messages) == offsets
    assert [offset for offset, row in messages.items() if row["preparedTransactionOffset"] == MARK] == hit
    assert rmqctl("verify", store).code == 0
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == broken != before


def test_what_is_torn_at_the_end_goes_all_the_same(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-basic--tail-torn", tmp_path)
    plain = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    going = rmqctl("recover", store, "--keep-going", "--dry-run", "-o", "json").document()
    assert going["maxPhyOffset"] == plain["maxPhyOffset"]
    assert going["lost"] == plain["lost"]


def overwritten(store: Path, path: str, position: int, data: bytes) -> None:
    with (store / path).open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("with_queues", [True, False])
def test_many_records_at_once(with_queues: bool, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Queue offsets behind the damage stay what they are, and each message that is gone counts as lost."""
    whole, store = unpack("533-basic", tmp_path / "whole"), unpack("533-basic", tmp_path / "store")
    overwritten(store, "commitlog/00000000000000065536", 20000, b"\xee" * 6000)
    if not with_queues:
        shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    plan = rmqctl("recover", store, "--keep-going", "--dry-run", "-o", "json").document()
    gone = [row for offset, row in dumped(rmqctl, whole).items() if 85536 - row["size"] < offset < 91536]
    assert len(gone) > 5
    assert plan["lost"]["records"] >= (len(gone) if with_queues else 1)
    assert plan["lost"]["bytes"] >= 6000
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    found = ranges(rmqctl("queue", store, "-o", "jsonl").rows())
    assert found == ranges(plan["queues"]) == ranges(rmqctl("queue", whole, "-o", "jsonl").rows())
    untouched = [row for row in dumped(rmqctl, whole).values() if row not in gone]
    for row in untouched[::20]:
        at = ("--topic", row["topic"], "--queue", row["queueId"], "--offset", row["queueOffset"])
        assert [found["physicalOffset"] for found in rmqctl("query", store, *at, "-o", "jsonl").rows()] == [row["physicalOffset"]]


def test_lmq_units_of_marked_and_other_messages_stay(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, store = unpack("533-lmq", tmp_path / "whole"), unpack("533-lmq", tmp_path / "store")
    overwritten(store, "commitlog/00000000000000065536", 30000, b"\xee" * 3000)
    (store / "abort").touch()
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    assert ranges(rmqctl("queue", store, "-o", "jsonl").rows()) == ranges(rmqctl("queue", whole, "-o", "jsonl").rows())
