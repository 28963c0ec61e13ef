"""recover --keep-going: a damaged record in the middle gets a placeholder, and all the others stay."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import PLACEHOLDER_SIGN
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.file_edits import overwrite
from tests.support.golden_store import CASES, FLIPS, damaged, profile_of, ranges
from tests.support.log_maker import V2, sample_records, write_log
from tests.support.repair import plan_of, repaired

FRAMES = ("--magic-flip-last-abnormal", "--size-flip-last", "--magic-zero-last-file-head")
DAMAGED_RECORDS = [*FLIPS, *sorted(name for name in CASES if name.endswith(FRAMES))]


def dumped(rmqctl: Rmqctl, store: Path) -> dict[int, dict[str, Any]]:
    rows = rmqctl("dump", store, "-o", "jsonl", "--body", "base64").rows()
    return {row["physicalOffset"]: row for row in rows}


@pytest.mark.parametrize("name", DAMAGED_RECORDS)
def test_all_messages_but_the_damaged_one_stay(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A record without a frame gets its place from the queues."""
    base = CASES[name]["base"]
    whole, store = unpack(base, tmp_path / "whole"), damaged(name, tmp_path / "damaged")
    (place,) = (int(op["path"][-20:]) + op["offset"] for op in CASES[name]["ops"] if op["path"].startswith("commitlog"))
    messages = dumped(rmqctl, whole)
    gone = max(at for at in messages if at <= place)
    placeholder = all_kept_but(rmqctl, store, whole, {gone}, "--profile", profile_of(base))[gone]
    if name in FLIPS:
        same = ("topic", "queueId", "queueOffset", "size", "storeTimestamp", "tagsCode")
        assert [placeholder[key] for key in same] == [messages[gone][key] for key in same]


def test_several_files_and_places_at_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, store = two_copies("497-basic", tmp_path)
    offsets = list(dumped(rmqctl, store))
    hit = [offsets[number] for number in (20, 100, 101, 102, 200)]
    for offset in hit:
        overwrite(store, offset + 4, b"\xde\xad\xbe\xef")
    all_kept_but(rmqctl, store, whole, {*hit})


def test_what_is_torn_at_the_end_goes_all_the_same(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = damaged("471-basic--tail-torn", tmp_path)
    plain, going = plan_of(rmqctl, store), plan_of(rmqctl, store, "--keep-going")
    assert (going["maxPhyOffset"], going["lost"]) == (plain["maxPhyOffset"], plain["lost"])


def record_end(rmqctl: Rmqctl, store: Path) -> int:
    """The end of a record of the second file, as a place in it."""
    return next(at + int(row["size"]) - 65536 for at, row in dumped(rmqctl, store).items() if at > 80000)


def two_copies(name: str, into: Path) -> tuple[Path, Path]:
    """One that stays whole, and one to be damaged."""
    return unpack(name, into / "whole"), unpack(name, into / "store")


def all_kept_but(rmqctl: Rmqctl, store: Path, whole: Path, gone: set[int], *options: str) -> dict[int, dict[str, Any]]:
    """--keep-going leaves a store that has everything, and placeholders for what is gone, at once; returns these."""
    wanted = dumped(rmqctl, whole)
    with repaired(rmqctl, store, "--keep-going", *options) as plan:
        assert plan["lost"] == {"records": len(gone), "bytes": sum(wanted[at]["size"] for at in gone)}
        assert (plan["placeholders"], plan["leaves"]) == (len(gone), [])
        report = rmqctl("verify", store, "-o", "json").document()
        assert (report["placeholders"], report["messages"]) == (len(gone), len(wanted))
        words = "1 is a placeholder" if len(gone) == 1 else f"{len(gone)} are placeholders"
        assert (words in rmqctl("verify", store).err) == bool(gone)
        messages = dumped(rmqctl, store)
        assert messages.keys() == wanted.keys()
        assert {at for at, row in messages.items() if row["preparedTransactionOffset"] == PLACEHOLDER_SIGN} == gone
        assert {at for at, row in messages.items() if row != wanted[at]} == gone
        assert ends(rmqctl, store) == ends(rmqctl, whole)
        assert plan_of(rmqctl, store, "--keep-going", *options)["notes"] == []
    return {at: messages[at] for at in gone}


def ends(rmqctl: Rmqctl, store: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """Where each queue begins and ends."""
    return ranges(rmqctl("queue", store, "-o", "jsonl").rows())


@pytest.mark.parametrize("size", [0, 7, 30000, "record", 65000])
def test_a_file_that_was_cut_gets_marks_up_to_its_end(size: int | str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, store = two_copies("533-basic", tmp_path)
    length = record_end(rmqctl, whole) if isinstance(size, str) else size
    os.truncate(store / "commitlog" / f"{65536:020d}", length)
    gone = {
        at for at, row in dumped(rmqctl, whole).items() if 65536 <= at < 131072 and at + row["size"] > 65536 + length
    }
    all_kept_but(rmqctl, store, whole, gone)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("base", ["471-basic", "533-basic"])
def test_files_that_are_missing_are_made_of_marks(base: str, count: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, store = two_copies(base, tmp_path)
    for number in range(1, count + 1):
        (store / "commitlog" / f"{number * 65536:020d}").unlink()
    gone = {at for at in dumped(rmqctl, whole) if 65536 <= at < 65536 * (count + 1)}
    all_kept_but(rmqctl, store, whole, gone)


def test_a_file_of_marks_expires_with_the_one_before(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    first, second = (store / "commitlog" / f"{number * 65536:020d}" for number in (0, 1))
    second.unlink()
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    assert second.stat().st_mtime_ns == first.stat().st_mtime_ns


@pytest.mark.parametrize("code", ["bad-physical-offset", "torn-properties"])
def test_what_brokers_serve_does_not_end_the_log_behind_a_mark(code: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    rows = dumped(rmqctl, store)
    first, second = list(rows)[100], list(rows)[200]
    overwrite(store, first + 4, b"\0\0\0\1")
    at = second + 28 + 7 if code == "bad-physical-offset" else second + rows[second]["size"] - 1
    overwrite(store, at, b"\0" if code == "torn-properties" else b"\xff")
    (store / "abort").touch()
    plan = plan_of(rmqctl, store, "--keep-going")
    assert (plan["lost"]["records"], plan["placeholders"], plan["endReason"]) == (1, 1, None)


def test_what_brokers_serve_follows_a_mark(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Also as the last of the log."""
    store = unpack("533-basic", tmp_path)
    rows = dumped(rmqctl, store)
    first, last = list(rows)[-2:]
    overwrite(store, first + 4, b"\0\0\0\1")
    overwrite(store, last + rows[last]["size"] - 1, b"\0")
    (store / "abort").touch()
    with repaired(rmqctl, store, "--keep-going") as plan:
        after = dumped(rmqctl, store)
        assert (list(after), plan["leaves"]) == (list(rows), [])
        assert [after[at]["preparedTransactionOffset"] == PLACEHOLDER_SIGN for at in (first, last)] == [True, True]


def test_bytes_behind_a_files_end_are_marked_when_the_log_goes_on(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, store = two_copies("533-basic", tmp_path)
    end = record_end(rmqctl, whole)
    overwrite(store, 65536 + end, bytes(65536 - end))
    overwrite(store, 65536 + end + 100, b"what was never a record")
    all_kept_but(rmqctl, store, whole, {at for at in dumped(rmqctl, whole) if 65536 + end <= at < 131072})


@pytest.mark.parametrize("with_queues", [True, False])
def test_many_records_at_once(with_queues: bool, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Queue offsets after the damage stay what they are, and each message that is gone counts as lost."""
    whole, store = two_copies("533-basic", tmp_path)
    overwrite(store, 85536, b"\xee" * 6000)
    if not with_queues:
        shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    rows = dumped(rmqctl, whole)
    gone = [row for offset, row in rows.items() if 85536 - row["size"] < offset < 91536]
    assert len(gone) > 5
    with repaired(rmqctl, store, "--keep-going") as plan:
        assert plan["lost"]["records"] >= (len(gone) if with_queues else 1)
        assert plan["lost"]["bytes"] >= 6000
        assert ends(rmqctl, store) == ranges(plan["queues"]) == ends(rmqctl, whole)
        for row in [row for row in rows.values() if row not in gone][::20]:
            at = ("--topic", row["topic"], "--queue", row["queueId"], "--offset", row["queueOffset"])
            (found,) = rmqctl("query", store, *at, "-o", "jsonl").rows()
            assert found["physicalOffset"] == row["physicalOffset"]


def test_lmq_units_of_marked_and_other_messages_stay(tmp_path: Path, rmqctl: Rmqctl) -> None:
    whole, store = two_copies("533-lmq", tmp_path)
    overwrite(store, 65536 + 30000, b"\xee" * 3000)
    (store / "abort").touch()
    with repaired(rmqctl, store, "--keep-going") as plan:
        assert plan["actions"]
        assert ends(rmqctl, store) == ends(rmqctl, whole)


def test_what_an_earlier_life_of_the_log_left_stays_dead(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A broker that cuts its log and writes on leaves older records after the new end."""
    store = unpack("533-basic", tmp_path)
    end = [at for at in dumped(rmqctl, store) if at > 196608][10]
    stale = (store / "commitlog" / f"{196608:020d}").read_bytes()
    assert rmqctl("truncate", store, "--to", end, "--yes").code == 3
    assert rmqctl("append", store, "--topic", "OrderPaid", "--body", "x" * 300).code == 0
    written = dumped(rmqctl, store)
    new_end = max(at + int(row["size"]) for at, row in written.items())
    overwrite(store, new_end, stale[new_end - 196608 :])
    (store / "abort").touch()
    plain = plan_of(rmqctl, store)
    assert (plain["maxPhyOffset"], plain["keepable"]) == (new_end, 0)
    with repaired(rmqctl, store, "--keep-going") as plan:
        assert (plan["maxPhyOffset"], plan["placeholders"], plan["leaves"]) == (new_end, 0, [])
        assert "no queue leads there" in plan["endReason"]
        assert dumped(rmqctl, store) == written


def made(root: Path, rmqctl: Rmqctl) -> tuple[Path, list[int]]:
    """A store of our own: eight messages, the sixth of a long topic (V2); the first has no body.

    And where they begin.
    """
    records = sample_records(8)
    records[5].magic, records[5].topic = V2, "T" * 130
    write_log(root / "store", records, file_size=8192)
    return root / "store", list(dumped(rmqctl, root / "store"))


@pytest.mark.parametrize("keep_going", [(), ("--keep-going",)])
def test_an_empty_body_with_a_wrong_checksum_stays(keep_going: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
    """No broker checks it: it is served."""
    store, _ = made(tmp_path, rmqctl)
    overwrite(store, 8, b"\x12\x34\x56\x78")
    plan = plan_of(rmqctl, store, *keep_going, "--profile", "5.3")
    assert (plan["lost"]["records"], plan["placeholders"], plan["endReason"], plan["records"]) == (0, 0, None, 8)


def test_a_record_that_4x_does_not_know_ends_the_log(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """The next start would end it there, too, and drop what stands after it."""
    store, offsets = made(tmp_path, rmqctl)
    overwrite(store, offsets[2] + 4, b"\0\0\0\1")
    plan = plan_of(rmqctl, store, "--keep-going", "--profile", "4.9")
    assert (plan["maxPhyOffset"], plan["lost"]["records"]) == (offsets[5], 4)
    assert "takes for no record" in plan["endReason"]
    newer = plan_of(rmqctl, store, "--keep-going", "--profile", "5.3")
    assert (newer["lost"]["records"], newer["endReason"]) == (1, None)


def test_a_place_that_was_filled_in_stays_what_it_is(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A unit that stands in for a lost message leads to the next message; it says nothing about that message's own
    number.
    """
    store = unpack("533-propcrc", tmp_path)
    shutil.rmtree(store / "consumequeue")
    (store / "commitlog" / f"{3 * 65536:020d}").write_bytes(bytes(65536))
    overwrite(store, 2 * 65536 + 24571, bytes(4096))
    conf = ("--broker-conf", tmp_path / "broker.conf")
    conf[1].write_text("mappedFileSizeConsumeQueue=1000\n")
    assert rmqctl("recover", store, *conf, "--keep-going", "--yes").code == 3
    again = plan_of(rmqctl, store, *conf)
    assert (again["actions"], again["lost"]["records"]) == ([], 0)
    found = rmqctl("verify", store, *conf, "-o", "json").document()["findings"]
    assert again["leaves"] == [{"code": "unit-mismatch", "count": len(found)}]


def rename_last_log_file(store: Path, base: int) -> None:
    """The last file with messages lies elsewhere in the log; its messages say so."""
    files = sorted((store / "commitlog").iterdir())
    last = max(path for path in files if any(path.read_bytes()[:64]))
    raw, at = bytearray(last.read_bytes()), 0
    while (size := int.from_bytes(raw[at : at + 4])) and raw[at + 4 : at + 8] != b"\xcb\xd4\x31\x94":
        raw[at + 28 : at + 36] = (base + at).to_bytes(8)
        at += size
    for path in (path for path in files if path >= last):
        path.unlink()
    (store / "commitlog" / f"{base:020d}").write_bytes(raw)


@pytest.mark.parametrize(
    ("base", "options", "said"),
    [
        (
            2**62,
            (),
            "for 4611686018427191296 bytes of the log up to 4611686018427387904 of 70368744177661 missing files, more",
        ),
        (2**62, ("--placeholders-limit", "7EB"), "is not a number of bytes"),
        (
            2**62,
            ("--placeholders-limit", "8000000TB"),
            "70368744177661 missing files, more than the limit of 10000 files",
        ),
        (65536 * 10**6, (), "999997 missing files, more than the limit of 10000 files"),
        (
            65536 * 5,
            ("--placeholders-limit", "100KiB"),
            "placeholders are needed for 131072 bytes of the log up to 327680 of 2 missing files, more than",
        ),
    ],
)
def test_more_marks_than_the_limit_are_refused(
    base: int, options: tuple[str, ...], said: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = unpack("533-basic", tmp_path)
    rename_last_log_file(store, base)
    before = tree_hash(store)
    began = time.monotonic()
    for last in ("--dry-run", "--yes"):
        result = rmqctl("recover", store, "--keep-going", *options, last)
        assert (result.code, said in result.err, tree_hash(store) == before) == (2, True, True), result.err
    assert time.monotonic() - began < 20


def test_the_plan_counts_the_bytes_and_files_of_marks(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("533-basic", tmp_path)
    rename_last_log_file(store, 65536 * 5)
    limit = ("--keep-going", "--placeholders-limit", "128KiB")
    plan, plain = plan_of(rmqctl, store, *limit), plan_of(rmqctl, store)
    assert (plan["placeholdersBytes"], plan["placeholdersFiles"]) == (131072, 2)
    assert "(131072 bytes of the log and 2 missing files)" in rmqctl("recover", store, *limit, "--dry-run").out
    assert (plain["placeholders"], plain["placeholdersBytes"], plain["placeholdersFiles"]) == (0, 0, 0)
