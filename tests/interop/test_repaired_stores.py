"""Stores that rmqctl repaired, under the real stores: they load, and have all that a broker's own restart would have
left, and more.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import Message
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, apply_damage, expected, unpack
from tests.interop.compared_answers import (
    ALL,
    BASES,
    CASES,
    REPAIRED,
    VERSION_OF,
    assert_all_but_placeholders,
    assert_keys,
    assert_no_worse,
    conf_of,
    messages,
    real_answers,
    rmqctl,
    units,
)
from tests.interop.readings import Stored, about, read_copies, sizes
from tests.interop.written_stores import PROFILE_OF
from tests.real_store.harness import RealRocketMQ
from tests.support.file_edits import overwrite
from tests.support.golden_store import FLIPS, SILENT, died, profile_of, ranges
from tests.support.time_look_ups import assert_time_look_ups

pytestmark = pytest.mark.interop

GOLDEN = [name for name in READABLE_NAMES if not name.startswith("326")]


def recover(root: Path, name: str, *options: str) -> int:
    return rmqctl(
        "recover", root, "--profile", profile_of(name), "--broker-conf", conf_of(name, root.parent), "--yes", *options
    )


def rebuild(root: Path, name: str) -> int:
    return rmqctl("rebuild", root, "all", "--broker-conf", conf_of(name, root.parent), "--yes")


def assert_all_of(answer: dict[str, Any], golden: dict[str, Any]) -> None:
    """Between its ends the log has all messages, each in its queues and under its keys; and no queue
    has anything else.
    """
    assert answer.get("load") is True, answer
    ends = answer["minPhyOffset"], answer["maxPhyOffset"]
    assert messages(answer, 0, ends[1] + 1) == messages(golden, *ends)
    assert units(answer) == {unit for unit in units(golden) if ends[0] <= unit[3] < ends[1]}
    for row in answer["queues"]:
        assert len(row["entries"]) == row["maxOffset"] - row["minOffset"]
    assert_keys(answer, golden, *ends)


def damage_begin(case: dict[str, Any], log_end: int) -> int:
    """The first physical offset from which on the log is not what it was; a first file that is gone only moves its
    begin.
    """
    begins = [log_end]
    for operation in case["ops"]:
        folder, _, name = operation["path"].partition("/")
        if folder == "commitlog" and not (operation["op"] == "delete" and int(name) == 0):
            begins.append(int(name) + int(operation.get("offset", operation.get("size", 0))))
    return min(begins)


def end_in_front_of(golden: dict[str, Any], offset: int) -> int:
    """The end of the last message that is whole before an offset."""
    ends = (row["physicalOffset"] + row["size"] for row in golden["messages"])
    return max((end for end in ends if end <= offset), default=0)


def test_there_are_all_the_cases() -> None:
    assert (len(CASES), len(BASES)) == (126, 6)


@pytest.mark.parametrize("base", BASES)
def test_damaged_stores(base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recovered, and recovered and rebuilt: both have all that the log has before its damage, and what the broker would
    keep.
    """
    names = [name for name in CASES if CASES[name]["base"] == base]
    golden = expected(base)
    repaired: dict[tuple[str, str], Path] = {}
    for name in names:
        root = unpack(base, tmp_path / name)
        apply_damage(root, CASES[name]["ops"])
        assert recover(root, base) in (0, REPAIRED)
        rebuilt = tmp_path / name / "rebuilt"
        shutil.copytree(root, rebuilt)
        assert rebuild(rebuilt, base) in (0, REPAIRED)
        repaired |= {(name, "recovered"): root, (name, "rebuilt"): rebuilt}
    capsys.readouterr()
    for (name, how), answer in zip(repaired, real_answers(repaired.values(), base), strict=True):
        case = CASES[name]
        assert_all_of(answer, golden)
        end = golden["maxPhyOffset"]
        assert answer["maxPhyOffset"] >= end_in_front_of(golden, damage_begin(case, end)), name
        damaged = [row for row in answer["messages"] if row["crc32"] != row["bodyCrc"]]
        assert len(damaged) == (case["case"] == SILENT), name
        load, restart = case["expected"]["load"], case["expected"]["restart"]
        if load.get("load") and "error" not in restart:
            # 4.x goes by when a file was written last, which an archive does not keep exactly; a rebuild says it anew
            assert_no_worse(answer, restart, with_times=how == "rebuilt" or base.startswith("533"))


@pytest.mark.parametrize("version", PROFILE_OF)
def test_golden_stores(version: str, tmp_path: Path) -> None:
    repaired: dict[tuple[str, str], Stored] = {}
    for name in (name for name in GOLDEN if VERSION_OF[profile_of(name)] == version):
        recovered, rebuilt = unpack(name, tmp_path / name), unpack(name, tmp_path / f"{name}-rebuilt")
        assert recover(recovered, name) == (REPAIRED if died(name) else 0)
        assert rebuild(rebuilt, name) in (0, REPAIRED)
        repaired |= {(name, "recovered"): Stored(name, recovered), (name, "rebuilt"): Stored(name, rebuilt)}
    answers = read_copies(version, repaired, start=True, key_messages=ALL, time_look_ups=True)
    for (name, how), answer in answers.items():
        with about(name, how):
            golden = expected(name)
            assert_all_of(answer, golden)
            assert (answer["minPhyOffset"], answer["maxPhyOffset"]) == (golden["minPhyOffset"], golden["maxPhyOffset"])
            assert ranges(answer["queues"]) == ranges(golden["queues"])
            assert_time_look_ups(repaired[name, how].root, answer, version)


@pytest.mark.parametrize(("version", "names"), [("4.9.7", ("497-basic", "broker-497")), ("5.5.0", ("550-basic",))])
def test_healed_stores(version: str, names: tuple[str, ...], tmp_path: Path) -> None:
    """With flipped bits, healed from what they have; with lost parts and files, and without the end, from a replica."""
    healed: dict[tuple[str, str], Stored] = {}
    for name in names:
        flipped, hit = unpack(name, tmp_path / name), unpack(name, tmp_path / f"{name}-hit")
        whole = [one for one in ReadOnlyStore(flipped).commit_log.scan() if isinstance(one, Message)]
        for message in whole[20:120:10]:  # in the body, or in MAGICCODE
            at = message.physical_offset + (100 if len(message.body) > 20 else 5)
            overwrite(flipped, at, bytes([byte_at(flipped, at) ^ 4]))
        assert rmqctl("heal", flipped, "--yes") == REPAIRED
        overwrite(hit, 40_000, bytes(20_000))
        slave = unpack(name, tmp_path / f"{name}-slave")
        assert rmqctl("heal", hit, "--from", slave, "--yes") == REPAIRED
        lost, behind = unpack(name, tmp_path / f"{name}-lost"), unpack(name, tmp_path / f"{name}-behind")
        first, second, *_ = sorted((lost / "commitlog").iterdir())
        first.unlink()
        os.truncate(second, 30_000)
        assert rmqctl("heal", lost, "--from", slave, "--yes") == REPAIRED
        assert rmqctl("truncate", behind, "--to", whole[200].physical_offset, "--yes") == REPAIRED
        assert rmqctl("heal", behind, "--from", slave, "--tail", "--yes") == REPAIRED
        assert rebuild(behind, name) == REPAIRED
        healed |= {(name, "flipped"): Stored(name, flipped), (name, "hit"): Stored(name, hit)}
        healed |= {(name, "lost"): Stored(name, lost), (name, "behind"): Stored(name, behind)}
    answers = read_copies(version, healed, start=True, key_messages=ALL)
    for (name, how), answer in answers.items():
        with about(name, how):
            assert_all_of(answer, expected(name))


def byte_at(store: Path, physical_offset: int) -> int:
    path = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= physical_offset)
    return path.read_bytes()[physical_offset - int(path.name)]


def with_abort(stored: Stored) -> Stored:
    """A copy on which a broker starts as after a crash."""
    copy = stored.root.with_name(f"{stored.root.name}-abort")
    shutil.copytree(stored.root, copy)
    (copy / "abort").touch()
    return stored._replace(root=copy)


def test_a_damaged_body_costs_one_message(tmp_path: Path) -> None:
    """recover --keep-going; the 5.3 stores here have nothing that 4.x does not read."""
    repaired: dict[tuple[str, str], Stored] = {}
    for name in sorted(CASES.keys() & set(FLIPS)):
        base = CASES[name]["base"]
        root = unpack(base, tmp_path / name)
        apply_damage(root, CASES[name]["ops"])
        assert recover(root, base, "--keep-going") == REPAIRED
        stored = Stored(base, root)
        repaired |= {(name, "normal"): stored, (name, "abort"): with_abort(stored)}
    for version in PROFILE_OF:
        answers = read_copies(version, repaired, start=True, key_messages=ALL)
        for (name, how), answer in answers.items():
            with about(version, name, how):
                golden = expected(CASES[name]["base"])
                (placeholder,) = assert_all_but_placeholders(answer, golden)
                assert placeholder["bodyCrc"] == placeholder["crc32"]
                assert_keys(answer, golden, 0, golden["maxPhyOffset"])


def test_a_lost_file_costs_what_was_in_it(tmp_path: Path) -> None:
    """recover --keep-going, where a file of the log is missing, or was cut; then a start in order, and one after a
    crash.
    """
    base = "471-basic"
    repaired: dict[tuple[int | None, str], Stored] = {}
    for length in (None, 0, 30000):
        root = unpack(base, tmp_path / str(length))
        lost = root / "commitlog" / f"{65536:020d}"
        if length is None:
            lost.unlink()
        else:
            os.truncate(lost, length)
        assert recover(root, base, "--keep-going") == REPAIRED
        stored = Stored(base, root)
        repaired |= {(length, "normal"): stored, (length, "abort"): with_abort(stored)}
    golden = expected(base)
    for version in PROFILE_OF:
        for (length, how), answer in read_copies(version, repaired, start=True, key_messages=ALL).items():
            with about(version, length, how):
                placeholders = assert_all_but_placeholders(answer, golden)
                assert {placeholder["physicalOffset"] // 65536 for placeholder in placeholders} == {1}
                assert len(placeholders) == sum(
                    65536 + (length or 0) < message["physicalOffset"] + message["size"]
                    and message["physicalOffset"] < 131072
                    for message in golden["messages"]
                    if message["physicalOffset"] >= 65536
                )


def truncate(root: Path, to: int, *options: str) -> int:
    return rmqctl("truncate", root, "--to", to, "--yes", *options)


@pytest.mark.parametrize("version", PROFILE_OF)
def test_a_truncated_log_ends_there(version: str, tmp_path: Path) -> None:
    """In the middle of the log and of a file, at a file's begin, before all; with abort, too: the real store has just
    what is left.
    """
    base = f"{version.replace('.', '')}-basic"
    golden = expected(base)
    offsets = sorted(row["physicalOffset"] for row in golden["messages"])
    cut: dict[tuple[int, str], Stored] = {}
    for to in (offsets[len(offsets) // 2], offsets[7], 65536, 131072, golden["maxPhyOffset"], 0):
        root = unpack(base, tmp_path / str(to))
        assert truncate(root, to) == (REPAIRED if to < golden["maxPhyOffset"] else 0)
        stored = Stored(base, root)
        cut |= {(to, "normal"): stored, (to, "abort"): with_abort(stored)}
    for (to, how), answer in read_copies(version, cut, start=True, key_messages=ALL).items():
        with about(to, how):
            assert answer["maxPhyOffset"] == to
            assert_all_of(answer, golden)
            assert len(units(answer)) == sum(offset < to for offset in offsets)


SAME_SIZES: dict[str, Any] = {"body_size": 100, "key_words": 0, "topics": 2, "queues_per_topic": 2}
FEW = 5


def put(root: Path, version: str, count: int, *, seed: int, crash: bool = False) -> int:
    return (
        RealRocketMQ(version)
        .put(root, count, geometry=sizes("471-basic"), seed=seed, crash=crash, **SAME_SIZES)
        .max_phy_offset
    )


def lives(answer: dict[str, Any]) -> list[str]:
    """Which put each message of the log is from (the unique key begins with its seed), in log order."""
    in_order = sorted(answer["messages"], key=lambda row: int(row["physicalOffset"]))
    return [row["properties"]["UNIQ_KEY"][:16].lstrip("0") for row in in_order]


@pytest.mark.parametrize("version", PROFILE_OF)
def test_puts_go_on_from_there(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was cut does not come back, though the next records end just where old ones began, and the broker dies."""
    root = tmp_path / "store"
    end = put(root, version, 600, seed=1)
    size, kept = end // 600, 320
    to = next(row["physicalOffset"] for row in dumped(root, capsys)[kept:])
    assert truncate(root, to) == REPAIRED
    stores = {crash: with_abort(Stored("471-basic", shutil.copytree(root, tmp_path / str(crash)))) for crash in (0, 1)}
    for crash, stored in stores.items():
        assert put(stored.root, version, FEW, seed=2, crash=bool(crash)) == to + FEW * size
    for crash, answer in read_copies(version, stores, start=True, key_messages=ALL).items():
        with about(f"crash: {crash}"):
            assert answer["maxPhyOffset"] == to + FEW * size
            assert lives(answer) == ["1"] * kept + ["2"] * FEW
            for row in answer["queues"]:
                assert [entry[0] for entry in row["entries"]] == list(range(row["minOffset"], row["maxOffset"]))
            assert sum(row["maxOffset"] for row in answer["queues"]) == kept + FEW
            assert_keys(answer, keys_of(answer), 0, answer["maxPhyOffset"])


def dumped(root: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert rmqctl("dump", root, "-o", "jsonl") == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def keys_of(answer: dict[str, Any]) -> dict[str, Any]:
    """What the store should say to the unique key of each of its messages."""
    rows = [
        {"topic": row["topic"], "key": row["properties"]["UNIQ_KEY"], "physicalOffsets": [row["physicalOffset"]]}
        for row in answer["messages"]
    ]
    return {"keyQueries": [row | {"max": 64} for row in rows]}


@pytest.mark.parametrize("base", ["497-basic", "533-basic"])
def test_a_log_file_with_a_wrong_name(base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind a gap, with empty queues: 4.9.7 waits for ever. Repaired it starts, and serves all before the gap."""
    golden, root = expected(base), unpack(base, tmp_path)
    (root / "commitlog" / f"{3 * 65536:020d}").rename(root / "commitlog" / f"{5 * 65536:020d}")
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    assert recover(root, base) == REPAIRED
    capsys.readouterr()
    answer = real_answers([root], base)[0]
    assert answer.get("load") is True
    assert units(answer) >= {unit for unit in units(golden) if unit[3] < 3 * 65536}
