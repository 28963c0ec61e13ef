"""The plan, case by case. What real brokers do in many of them is in tests/interop/test_expiry.py."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.errors import BadRequest
from rmqctl.format.cq_unit import EXT_BASE
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.operations.clean.disk_use import DiskUse
from rmqctl.operations.clean.plan import plan_expiry
from rmqctl.operations.clean.plan_types import MinOffsetAdvance
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.clean_config import ExpirySettings
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.expiring_store import (
    FILE_SIZE,
    NOW,
    OLD,
    RECORDS_A_FILE,
    TIME,
    UNIT,
    first_left,
    log_files,
    ms,
    plan,
    removed,
    set_ages,
    write_aged,
    write_store,
)
from tests.support.file_edits import write_at
from tests.support.log_maker import Record, encode

YOUNG = (5, 4, 3, 2, 1, 0)
ALL_OLD = (100,) * 5


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """These tests' host; `time_zone` changes it."""
    time_zone(monkeypatch, "UTC0")
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def time_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


class Case(NamedTuple):
    """Files so old (hours), settings, disks so full (percent): so many files go, because of this, and the first left
    stays for that.
    """

    ages: tuple[float, ...]
    settings: dict[str, Any]
    goes: int
    trigger: str | None
    stays: str
    disk: float = 50
    logics: float = 50
    profile: Profile = PROFILE_4_9


FORCED_4 = {"force_percent": 40.0}
CASES = {
    "the hour": Case(OLD, TIME, 3, "time", "not yet 72 h ago"),
    "one of several hours": Case(OLD, {"delete_when": (4, 8)}, 3, "time", "not yet 72 h ago"),
    "another hour": Case(OLD, {}, 0, None, "08 is not an hour of deleteWhen (04), and the log's disk is 50 % full"),
    "no hour of a day": Case(OLD, {"delete_when": (24,)}, 0, None, "08 is not an hour of deleteWhen (24)"),
    "exactly at the end of its time": Case((72, 0), TIME, 1, "time", "the last file"),
    "a millisecond before": Case((72 - 1 / 3_600_000, 0), TIME, 0, "time", "not yet 72 h ago"),
    "a day reserved": Case((30, 25, 20, 0), TIME | {"reserved_ms": 24 * 3_600_000}, 2, "time", "not yet 24 h ago"),
    "nothing reserved": Case(YOUNG, TIME | {"reserved_ms": 0}, 5, "time", "the last file never goes"),
    "all expired": Case((200,) * 8, TIME, 7, "time", "the last file never goes"),
    "more than a batch": Case((200,) * 25, TIME, 24, "time", "the last file never goes"),
    "a batch of none": Case((200,) * 5, TIME | {"batch": 0}, 4, "time", "the last file never goes"),
    "a young file first": Case((1, 100, 100, 0), TIME, 0, "time", "not yet 72 h ago"),
    "a young file between": Case((100, 1, 100, 0), TIME, 1, "time", "not yet 72 h ago"),
    "written to in the future": Case((-3, 100, 100, 0), TIME, 0, "time", "in the future: has a clock been set back?"),
    "the clock set back": Case((-500, -499, -498), TIME, 0, "time", "in the future: has a clock been set back?"),
    "one file": Case((500,), TIME | {"reserved_ms": 0}, 0, "time", "the last file never goes"),
    "manually": Case(OLD, {"manual": True}, 3, "manual", "not yet 72 h ago"),
    "manually, twenty rounds": Case(
        (200,) * 25, {"manual": True, "batch": 1}, 20, "manual", "after 20 rounds of 1 file nothing asks for more"
    ),
    "manually in the hour": Case(
        (200,) * 25, TIME | {"manual": True, "batch": 1}, 24, "time", "the last file never goes"
    ),
    "the disk at its limit": Case(OLD, {}, 0, None, "75 % full, the limit is 75 %", disk=75),
    "the disk over its limit": Case(OLD, {}, 3, "disk", "not yet 72 h ago", disk=76),
    "the disk over its limit, none expired": Case(YOUNG, {}, 0, "disk", "not yet 72 h ago", disk=84),
    "the disk cannot be read": Case(OLD, {}, 3, "disk", "not yet 72 h ago", disk=-1),
    "the queues' disk over its limit": Case(OLD, {}, 3, "disk", "not yet 72 h ago", logics=76),
    "the queues' disk cannot be read": Case(OLD, {}, 3, "disk", "not yet 72 h ago", logics=-1),
    "a limit below its bound": Case(OLD, {"max_disk_percent": 5.0}, 0, None, "the limit is 10 %", disk=9, logics=9),
    "a limit above its bound": Case(
        OLD, {"max_disk_percent": 100.0, "clean_forcibly": False}, 3, "disk", "not yet 72 h", disk=96
    ),
    "at the force level": Case(YOUNG, {}, 0, "disk", "not yet 72 h ago", disk=85),
    "forced": Case(YOUNG, {}, 5, "disk", "the last file never goes", disk=86),
    "forced, one round where the disk's size is not known": Case(
        (5,) * 25, {}, 10, "disk", "after 1 round of 10 files", disk=86
    ),
    "forced by the queues' disk": Case(YOUNG, {}, 5, "disk", "the last file never goes", logics=86),
    "forced, but not as the broker was told": Case(
        YOUNG, {"clean_forcibly": False}, 0, "disk", "not yet 72 h ago", disk=86
    ),
    "4.x: the force level alone asks for nothing": Case(YOUNG, FORCED_4, 0, None, "nothing asks for deletion"),
    "4.x: but in the hour it forces": Case(YOUNG, FORCED_4 | TIME, 5, "time", "the last file never goes"),
    "4.x: the warning level forces, too": Case(
        YOUNG, {"warning_percent": 40.0} | TIME, 5, "time", "the last file never goes"
    ),
    "4.x: a full log's disk hides a fuller queues' disk": Case(
        YOUNG, {}, 0, "disk", "not yet 72 h ago", disk=80, logics=95
    ),
    "5.x: the force level alone asks": Case(
        YOUNG, FORCED_4, 5, "disk", "the last file never goes", profile=PROFILE_5_3
    ),
    "5.x: either disk forces": Case(
        YOUNG, {}, 5, "disk", "the last file never goes", disk=80, logics=95, profile=PROFILE_5_3
    ),
    "5.x: a force level below its bound": Case(
        YOUNG, {"force_percent": 1.0}, 0, None, "nothing asks", disk=29, logics=29, profile=PROFILE_5_3
    ),
    "5.x: a force level above its bound": Case(
        YOUNG, {"force_percent": 99.0}, 5, "disk", "the last file", disk=86, profile=PROFILE_5_3
    ),
    "5.x: a warning level below its bound": Case(
        YOUNG, {"warning_percent": 1.0}, 0, None, "nothing asks", disk=34, logics=34, profile=PROFILE_5_3
    ),
    "keep files": Case(YOUNG, {"keep_files": 4}, 2, "by hand", "the log may keep"),
    "keep no files": Case(YOUNG, {"keep_files": 0}, 5, "by hand", "the last file never goes"),
    "keep more files than there are": Case(YOUNG, {"keep_files": 10}, 0, "by hand", "the log may keep"),
    "keep bytes": Case(YOUNG, {"keep_bytes": 3 * FILE_SIZE}, 3, "by hand", "the log may keep"),
    "keep bytes that are no whole file": Case(
        YOUNG, {"keep_bytes": 3 * FILE_SIZE - 1}, 4, "by hand", "the log may keep"
    ),
    "keep the fewer of two": Case(
        YOUNG, {"keep_bytes": 2 * FILE_SIZE, "keep_files": 5}, 4, "by hand", "the log may keep"
    ),
    "keep files, whatever the hour": Case(ALL_OLD, TIME | {"keep_files": 4}, 1, "by hand", "the log may keep"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_goes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    root = write_aged(tmp_path / "store", case.ages)
    found = plan(root, case.profile, disks=(case.disk,), logics=case.logics, **case.settings)
    assert removed(found) == case.goes
    assert found.trigger == case.trigger
    assert case.stays in first_left(found)
    assert found.new_min_phy_offset == case.goes * FILE_SIZE


@pytest.mark.parametrize(
    ("profile", "settings", "disk", "logics", "why"),
    [
        (PROFILE_4_9, {}, 86, 50, "the log's disk is 86 % full, more than 85 %"),
        (PROFILE_5_3, {}, 86, 50, "the log's disk is 86 % full, more than 85 %"),
        (PROFILE_4_9, FORCED_4 | TIME, 50, 50, "the log's disk is 50 % full, more than 40 %"),
        (PROFILE_4_9, {}, 50, 91, "the queues' disk is 91 % full, more than 85 %"),
        (PROFILE_5_3, {}, 50, 91, "the queues' disk is 91 % full, more than 85 %"),
    ],
)
def test_what_forces_is_told_with_its_level(
    profile: Profile, settings: dict[str, Any], disk: float, logics: float, why: str, tmp_path: Path
) -> None:
    """Not with that of what asks."""
    found = plan(write_aged(tmp_path / "store", YOUNG), profile, disks=(disk,), logics=logics, **settings)
    assert found.files[0].why == f"whatever its age: {why}"


def test_a_disk_that_is_not_helped_forces_one_round(tmp_path: Path) -> None:
    """4.x, in the hour: the queues' disk is over the force level, and no file of the log is on it.

    A broker goes on to the last file.
    """
    root = write_aged(tmp_path / "store", (5,) * 20)
    log_disk = DiskUse(root / "commitlog", 20, 20, 100, 100, device=1)
    logics_disk = DiskUse(root / "consumequeue", 50, 50, 100, 100, device=2)
    settings = ExpirySettings(delete_when=(8,), force_percent=40)
    found = plan_expiry(
        ReadOnlyStore(root), settings, PROFILE_4_9, now_ms=NOW, disks=[log_disk], logics_disk=logics_disk
    )
    assert removed(found) == 10
    assert "not yet 72 h ago" in first_left(found)


def test_a_queue_file_whose_last_unit_is_none_stays(tmp_path: Path) -> None:
    """A broker takes its zero for an offset before the log."""
    root = write_aged(tmp_path / "store", OLD)
    queue = root / "consumequeue" / "OrderPaid" / "1"
    write_at(queue / f"{100:020d}", 80, bytes(20))
    found = plan(root, **TIME)
    decisions = [(file.goes, file.why) for file in found.files if file.kind == "consumequeue"]
    assert [goes for goes, _ in decisions] == [True, False, False, False]
    assert decisions[1][1] == "its last unit is empty: what it stands for is not known"
    assert [warning for warning in found.warnings if "its last unit is empty" in warning and f"{100:020d}" in warning]


@pytest.mark.parametrize(("length", "why"), [(76, "which the log has"), (12, "its last unit is empty")])
def test_of_a_queue_file_that_is_too_short_the_last_whole_unit_counts(length: int, why: str, tmp_path: Path) -> None:
    """Its last 20 bytes are parts of two units: they would point before the log."""
    root = write_aged(tmp_path / "store", OLD)
    os.truncate(root / "consumequeue" / "OrderPaid" / "1" / f"{200:020d}", length)
    decisions = [(file.goes, file.why) for file in plan(root, **TIME).files if file.kind == "consumequeue"]
    assert [goes for goes, _ in decisions] == [True, True, False, False]
    assert why in decisions[2][1]


def test_a_queue_of_which_a_file_cannot_be_read_stays_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_aged(tmp_path / "store", OLD)
    real = MappedFile.read_exact

    def failing(file: MappedFile, position: int, size: int) -> bytes:
        if file.path == root / "consumequeue" / "OrderPaid" / "1" / f"{100:020d}":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, position, size)

    monkeypatch.setattr(MappedFile, "read_exact", failing)
    found = plan(root, **TIME)
    assert {file.kind for file in found.going} == {"commitlog", "index"}
    assert [warning for warning in found.warnings if "queue OrderPaid 1 stays as it is" in warning]


def test_an_index_file_whose_header_is_zero_stays(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    with (root / "index" / "20270101000000001").open("r+b") as file:
        file.write(bytes(40))
    found = plan(root, **TIME)
    assert [file.goes for file in found.files if file.kind == "index"] == [True, False, False]
    assert [warning for warning in found.warnings if "its last entry is empty" in warning]


def test_a_link_gives_nothing_back(tmp_path: Path) -> None:
    """The file that it leads to stays."""
    root = write_aged(tmp_path / "store", ALL_OLD)
    first = log_files(root)[0]
    first.rename(tmp_path / first.name)
    first.symlink_to(tmp_path / first.name)
    found = plan(root, links=True, **TIME)
    assert [file.allocated_bytes > 0 for file in found.going if file.kind == "commitlog"] == [False, True, True, True]
    assert [warning for warning in found.warnings if f"commitlog/{0:020d}, only a link" in warning]


@pytest.mark.parametrize(("ages", "is_told"), [(OLD, True), (YOUNG, False)])
def test_that_epochs_stay_is_told(ages: tuple[float, ...], is_told: bool, tmp_path: Path) -> None:
    """5.x in controller mode."""
    root = write_aged(tmp_path / "store", ages)
    assert not plan(root, **TIME).warnings
    (root / "epochFileCheckpoint").write_text("0\n1\n1-0\n")
    assert any("epochFileCheckpoint" in warning for warning in plan(root, **TIME).warnings) == is_told


def test_an_empty_store_has_nothing_to_delete(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = plan(tmp_path, keep_files=0, **TIME)
    assert (found.files, found.min_phy_offset, found.new_min_phy_offset) == ((), 0, 0)
    assert "no messages" in found.reason


def test_queues_and_index_follow_the_log(tmp_path: Path) -> None:
    """12 of 20 messages go: 2 of 4 queue files of 5 units, and of index files that end in files 0, 2 and 4 the first
    two.
    """
    found = plan(write_aged(tmp_path / "store", OLD), **TIME)
    assert [file.path for file in found.going] == [
        *(f"commitlog/{number * FILE_SIZE:020d}" for number in range(3)),
        *(f"consumequeue/OrderPaid/1/{number * 100:020d}" for number in range(2)),
        "index/20270101000000000",
        "index/20270101000000001",
    ]
    assert found.rises == (MinOffsetAdvance("OrderPaid", 1, 0, 3 * RECORDS_A_FILE),)
    assert [file.why for file in found.files if file.kind == "consumequeue"][1:] == [
        f"its last unit points to {2 * FILE_SIZE + unit_offset(1)}, before the log",
        f"its last unit points to {3 * FILE_SIZE + unit_offset(2)}, which the log has",
        "the last file never goes",
    ]


def unit_offset(number: int) -> int:
    """Where the record of that number begins in its file: all are of one size."""
    return number * len(encode(Record(), 0))


def test_what_an_earlier_run_left_goes_whatever_asks(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    for path in log_files(root)[:3]:
        path.unlink()
    found = plan(root)
    assert found.trigger is None
    assert (removed(found), len(found.going), found.rises) == (0, 4, ())


@pytest.mark.parametrize(("conf", "goes"), [(BrokerConf(), 2), (BrokerConf(consumequeue_ext_enabled=False), 0)])
def test_the_extension_begins_with_the_first_unit_left(conf: BrokerConf, goes: int, tmp_path: Path) -> None:
    """Its files have 100 bytes, for four units each; that of the first message left, the 13th, is at 300: a file that
    ends there stays.
    """
    root = write_aged(tmp_path / "store", OLD)
    for path in (root / "consumequeue" / "OrderPaid" / "1").iterdir():
        units = list(UNIT.iter_unpack(path.read_bytes()))
        first = int(path.name) // UNIT.size
        addresses = [EXT_BASE + at // 4 * 100 + at % 4 * 20 for at in range(first, first + len(units))]
        path.write_bytes(
            b"".join(UNIT.pack(at, size, address) for (at, size, _), address in zip(units, addresses, strict=True))
        )
    extension = root / "consumequeue_ext" / "OrderPaid" / "1"
    extension.mkdir(parents=True)
    for base in range(0, 500, 100):
        (extension / f"{base:020d}").write_bytes(bytes(100))
    decisions = [file.goes for file in plan(root, conf=conf, **TIME).files if file.kind == "consumequeue_ext"]
    assert decisions == [True] * goes + [False] * (5 - goes)


@pytest.mark.parametrize("settings", [TIME, {"keep_files": 0}, {"manual": True}])
def test_a_gap_is_never_reached(settings: dict[str, Any], tmp_path: Path) -> None:
    """The file before it stays, so that it stays a gap: what is missing may lie in a folder that nobody named."""
    root = write_aged(tmp_path / "store", ALL_OLD)
    log_files(root)[2].unlink()
    for goes in (1, 0):
        found = plan(root, **settings)
        assert (removed(found), found.new_min_phy_offset) == (goes, FILE_SIZE)
        assert "a gap in the log: bytes 2048 to 3072 are missing" in first_left(found)
        assert any("a gap in the log" in warning for warning in found.warnings)
        for file in found.going:
            (root / file.path).unlink()


@pytest.mark.parametrize("settings", [TIME, {"keep_files": 0}, {"manual": True}])
def test_a_file_of_a_wrong_length_ends_the_run(settings: dict[str, Any], tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", ALL_OLD)
    os.truncate(log_files(root)[1], 1000)
    set_ages(root, ALL_OLD)
    found = plan(root, **settings)
    assert removed(found) == 1
    assert "it has 1000 bytes, not 1024" in first_left(found)


def test_a_file_that_is_allocated_ahead_does_not_count(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", (100, 100))
    (root / "commitlog" / f"{2 * FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    found = plan(root, **TIME)
    assert removed(found) == 1
    assert [file.why for file in found.files if file.kind == "commitlog"][1:] == [
        "the last file never goes",
        "allocated ahead, still empty",
    ]


def two_roots(tmp_path: Path, ages: tuple[float, ...]) -> tuple[Path, BrokerConf]:
    """Every second file of the log lies in another folder."""
    root = write_aged(tmp_path / "store", ages)
    (tmp_path / "more").mkdir()
    for path in log_files(root)[1::2]:
        path.rename(tmp_path / "more" / path.name)
    return root, BrokerConf(commitlog_paths=(str(root / "commitlog"), str(tmp_path / "more")))


@pytest.mark.parametrize(
    ("disks", "goes", "trigger"),
    [((90, 60), 0, None), ((60, 90), 0, None), ((90, 80), 3, "disk"), ((90, 86), 4, "disk"), ((90, -1), 3, "disk")],
)
def test_of_two_disks_the_less_full_counts(
    disks: tuple[float, ...], goes: int, trigger: str | None, tmp_path: Path
) -> None:
    root, conf = two_roots(tmp_path, OLD)
    found = plan(root, conf=conf, disks=disks)
    assert (removed(found), found.trigger) == (goes, trigger)


@pytest.mark.parametrize(("batch", "goes"), [(1, 3), (2, 4), (10, 10)])
@pytest.mark.parametrize("profile", [PROFILE_4_7, PROFILE_4_9, PROFILE_5_3])
def test_a_disk_asks_until_it_is_below_its_limit(profile: Profile, batch: int, goes: int, tmp_path: Path) -> None:
    """88 % of what 100 files take: three files less are 85 %, which forces no more, and the others are young."""
    root = write_aged(tmp_path / "store", (5,) * 20)
    store = ReadOnlyStore(root)
    each = store.storage.entry(log_files(root)[0]).allocated
    disk = DiskUse(root / "commitlog", 88, 88 * each, 100 * each, 100 * each, device=1)
    logics_disk = disk._replace(path=root / "consumequeue")
    found = plan_expiry(store, ExpirySettings(batch=batch), profile, now_ms=NOW, disks=[disk], logics_disk=logics_disk)
    assert removed(found) == goes


def test_a_queues_disk_of_its_own_gets_one_round(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", (5,) * 20)
    disk = DiskUse(root / "commitlog", 50, 50, 100, 100, device=1)
    logics_disk = DiskUse(root / "consumequeue", 90, 90, 100, 100, device=2)
    found = plan_expiry(
        ReadOnlyStore(root), ExpirySettings(), PROFILE_4_9, now_ms=NOW, disks=[disk], logics_disk=logics_disk
    )
    assert removed(found) == 10


@pytest.mark.parametrize(("percent", "goes"), [(0.0, 5), (1_000_000.0, 0)])
def test_of_a_disk_that_several_stores_share_each_has_a_part(percent: float, goes: int, tmp_path: Path) -> None:
    """5.x: the store has 6 files of 1024 bytes, and queues and index; its part are 100 bytes."""
    root = write_aged(tmp_path / "store", YOUNG)
    disk = DiskUse(root / "commitlog", 50, 500, 1000, 1000)
    settings = ExpirySettings(replicas_per_disk=10, logical_force_percent=percent, max_disk_percent=95)
    found = plan_expiry(ReadOnlyStore(root), settings, PROFILE_5_3, now_ms=NOW, disks=[disk], logics_disk=disk)
    assert (removed(found), found.trigger) == (goes, "disk")
    assert "of its part of the disk, one of 10" in found.reason


class TestByStoreTimestamp:
    """Ages from messages: that of the next file's first one."""

    def test_it_agrees_with_mtimes_that_are_right(self, tmp_path: Path) -> None:
        root = write_aged(tmp_path / "store", OLD)
        assert removed(plan(root, by="store-timestamp", **TIME)) == removed(plan(root, **TIME)) == 3
        assert not plan(root, **TIME).warnings

    def test_a_copy_that_lost_its_mtimes(self, tmp_path: Path) -> None:
        root = write_aged(tmp_path / "store", OLD)
        set_ages(root, (0,) * 5)
        by_mtime = plan(root, **TIME)
        assert removed(by_mtime) == 0
        assert len(by_mtime.warnings) == 1
        assert by_mtime.warnings[0].startswith(
            "the times of 3 files of the log are not those of their last messages"
        )  # the fourth an hour: not more
        assert "--by store-timestamp" in by_mtime.warnings[0]
        by_messages = plan(root, by="store-timestamp", **TIME)
        assert (removed(by_messages), by_messages.warnings) == (3, ())
        assert [file.last_store_timestamp for file in by_messages.files][:5] == [*(ms(age) for age in OLD[:-1]), None]

    def test_a_file_behind_which_no_record_is_good_counts_from_the_next_that_is(self, tmp_path: Path) -> None:
        root = write_aged(tmp_path / "store", (100, 90, 5, 0))
        with log_files(root)[1].open("r+b") as file:
            file.write(b"\xff" * 8)
        found = plan(root, by="store-timestamp", **TIME)
        assert [file.last_store_timestamp for file in found.files][:2] == [ms(90), ms(90)]
        assert removed(found) == 2

    def test_what_is_not_known_stays(self, tmp_path: Path) -> None:
        root = write_aged(tmp_path / "store", (100, 90))
        with log_files(root)[1].open("r+b") as file:
            file.write(b"\xff" * 8)
        found = plan(root, by="store-timestamp", **TIME)
        assert "is not known" in first_left(found)


@pytest.mark.parametrize(
    ("profile", "percent", "is_told"), [(PROFILE_4_9, 31, True), (PROFILE_5_3, 35, False), (PROFILE_5_3, 36, True)]
)
def test_that_a_broker_stops_writing_is_told(profile: Profile, percent: float, is_told: bool, tmp_path: Path) -> None:
    """Its level is 30 %, which 5.x takes for 35 %."""
    root = write_aged(tmp_path / "store", OLD)
    for disks, logics in (((percent,), 0.0), ((0.0,), percent)):
        found = plan(root, profile, disks=disks, logics=logics, warning_percent=30.0, clean_forcibly=False)
        assert any("a broker takes no messages while" in warning for warning in found.warnings) == is_told


@pytest.mark.parametrize("now", [10**17, -(10**17)])
def test_what_is_no_date_is_an_error(now: int, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is no date"):
        plan(write_aged(tmp_path / "store", OLD), now=now)


def test_mtimes_in_the_future_are_told(tmp_path: Path) -> None:
    found = plan(write_aged(tmp_path / "store", (-5, -4, 0)), **TIME)
    assert any(warning.startswith("the times of 2 files of the log are in the future") for warning in found.warnings)


def test_the_sum_of_what_goes_is_what_the_files_take(tmp_path: Path) -> None:
    root = write_aged(tmp_path / "store", OLD)
    found = plan(root, **TIME)
    assert found.bytes == sum((root / file.path).stat().st_size for file in found.going)
    assert found.allocated_bytes == sum((root / file.path).stat().st_blocks * 512 for file in found.going)


class TestUnusedTopics:
    """Queues of topics that topics.json does not have."""

    KNOWN = '{"topicConfigTable":{"OrderPaid":{"topicName":"OrderPaid"}}}'

    @staticmethod
    def store(root: Path, known: str | None = KNOWN) -> Path:
        """Topics that are all in the first file alone, but OrderPaid; and topics.json."""
        topics = ["Deleted", "%LMQ%sub", "SCHEDULE_TOPIC_XXXX", "rmq_sys_X"]
        first = [Record(topic=topic, queue_id=0, body=b"", properties=b"", store_timestamp=ms(101)) for topic in topics]
        write_store(root, [first, *([Record(store_timestamp=ms(100))] * 2 for _ in range(3))])
        set_ages(root, (100,) * 4)
        (root / "config").mkdir()
        if known is not None:
            (root / "config" / "topics.json").write_text(known, encoding="ascii")
        return root

    def test_an_empty_queue_goes_as_a_whole(self, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store")
        going = [file for file in plan(root, unused_topics=True, **TIME).going if file.kind == "consumequeue"]
        assert [file.path for file in going] == [f"consumequeue/Deleted/0/{0:020d}"]
        assert "Deleted is not in topics.json" in going[0].why
        assert plan(root, unused_topics=True, **TIME).folders == ("consumequeue/Deleted/0", "consumequeue/Deleted")

    def test_what_an_interrupted_run_emptied_goes_and_what_a_known_topic_has_stays(self, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store")
        for name in ("OrderPaid/7", "Gone/0", "Gone/1", "SCHEDULE_TOPIC_XXXX/17", "Half/0", "Half/not-a-queue"):
            (root / "consumequeue" / name).mkdir(parents=True)
        (root / "consumequeue/Half/not-a-queue/file").touch()
        (root / "consumequeue_ext" / "Gone").mkdir(parents=True)
        assert plan(root, unused_topics=True).folders == (
            *("consumequeue/Gone/0", "consumequeue/Gone/1", "consumequeue/Gone", "consumequeue/Half/0"),
            "consumequeue_ext/Gone",
        )
        assert plan(root).folders == ()

    def test_one_with_messages_stays_and_one_that_nobody_asked_for(self, tmp_path: Path) -> None:
        root = self.store(tmp_path / "store")
        assert not plan(root, unused_topics=True).going
        assert all("Deleted" not in file.path for file in plan(root, **TIME).going)

    @pytest.mark.parametrize("content", [None, "", "{", "{}", '{"topicConfigTable":{}}'])
    def test_without_a_good_topics_json_none_is_unused(self, content: str | None, tmp_path: Path) -> None:
        found = plan(self.store(tmp_path / "store", content), unused_topics=True, **TIME)
        assert all("Deleted" not in file.path for file in found.going)
        assert any("topics.json names no topic" in warning for warning in found.warnings)


class TestLocalTime:
    """deleteWhen is an hour of the broker host's own time."""

    BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"

    @pytest.mark.parametrize(
        ("zone", "hour", "said"),
        [
            ("UTC0", 8, "UTC (UTC+0000)"),
            (BERLIN, 9, "CET (UTC+0100)"),
            ("EST5EDT,M3.2.0,M11.1.0", 3, "EST (UTC-0500)"),
            ("IST-5:30", 13, "IST (UTC+0530)"),
            ("NZST-12NZDT,M9.5.0,M4.1.0/3", 21, "NZDT (UTC+1300)"),
        ],
    )
    def test_the_hour_and_the_zone_are_told(
        self, zone: str, hour: int, said: str, utc: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        root = write_aged(tmp_path / "store", OLD)
        time_zone(utc, zone)
        found = plan(root, delete_when=(hour,))
        assert (found.hour, found.time_zone, removed(found)) == (hour, said, 3)
        assert removed(plan(root, delete_when=((hour + 1) % 24,))) == 0

    @pytest.mark.parametrize(
        ("day", "hour", "minutes"),
        [
            ((2027, 3, 27), 2, 60),  # the day before
            ((2027, 3, 28), 2, 0),  # from 01:59 to 03:00: a broker told `02` deletes nothing by time
            ((2027, 3, 28), 3, 60),
            ((2027, 10, 31), 2, 120),  # from 02:59 to 02:00
            ((2027, 10, 31), 3, 60),
        ],
    )
    def test_an_hour_may_be_missing_or_come_twice(
        self, day: tuple[int, int, int], hour: int, minutes: int, utc: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        root = write_aged(tmp_path / "store", OLD)
        time_zone(utc, self.BERLIN)
        noon = int(datetime(*day, 12, tzinfo=UTC).timestamp() * 1000)
        every_20_minutes = range(noon - 14 * 3_600_000, noon + 11 * 3_600_000, 20 * 60_000)
        times = [now for now in every_20_minutes if plan(root, now=now, delete_when=(hour,)).trigger == "time"]
        of_the_day = [now for now in times if datetime.fromtimestamp(now / 1000).day == day[2]]
        assert len(of_the_day) * 20 == minutes
