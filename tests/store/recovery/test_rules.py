"""The rules of recovery, one by one, over every combination of what decides."""

from __future__ import annotations

import itertools

import pytest

from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.rules import EVERYTHING, HEAD_SIZE, NO_QUEUE, FileHead, FolderEntry, Mode
from tests.support.log_maker import BORN_V6, V2, Record, encode

OLD = (PROFILE_4_7, PROFILE_4_9)
ALL = tuple(PROFILES.values())
SIZE = 1000
BASES = [0, 1000, 2000, 3000, 4000]


def checkpoint(physic: int, logics: int, index: int = 0) -> Checkpoint:
    return Checkpoint(physic, logics, index, 0, 0)


def test_abort_decides_the_mode() -> None:
    assert rules.mode_of(has_abort=True) is Mode.ABNORMAL
    assert rules.mode_of(has_abort=False) is Mode.NORMAL


WHOLE, SHORT, EMPTY, NO_OFFSET = (
    FolderEntry(f"{0:020d}", SIZE), FolderEntry(f"{1000:020d}", 7), FolderEntry(f"{2000:020d}", 0),
    FolderEntry("notes.txt", SIZE),
)  # fmt: skip
FOLDER = FolderEntry("sub", 4096, is_folder=True)


@pytest.mark.parametrize(
    ("entries", "refused_by"),
    [
        ([], ()),
        ([WHOLE], ()),
        ([WHOLE, SHORT], ALL),
        ([SHORT, EMPTY], ALL),
        ([WHOLE, EMPTY], OLD),
        ([EMPTY._replace(name=f"{0:020d}"), WHOLE._replace(name=f"{1000:020d}")], ALL),
        ([WHOLE, FOLDER], OLD),
        ([WHOLE, EMPTY, FOLDER], ALL),  # then the empty file is not the last entry
        ([WHOLE, NO_OFFSET], ALL),
    ],
)
@pytest.mark.parametrize("profile", ALL)
def test_what_does_not_load(entries: list[FolderEntry], refused_by: tuple[Profile, ...], profile: Profile) -> None:
    refusal = rules.load_refusal(reversed(entries), SIZE, profile)
    assert (refusal is not None) == (profile in refused_by)
    if refusal:
        assert any(entry.name in refusal for entry in entries)


@pytest.mark.parametrize(("profile", "folder", "topic"), list(itertools.product(ALL, (True, False), (True, False))))
def test_only_5_asks_topics_json_for_the_type_of_a_queue(profile: Profile, folder: bool, topic: bool) -> None:
    refusal = rules.queue_type_refusal("T", is_batch_folder=folder, is_batch_topic=topic, profile=profile)
    assert (refusal is not None) == (profile not in OLD and folder != topic)


def test_safe_time_is_three_seconds_before_the_earlier_of_both() -> None:
    assert rules.safe_timestamp(checkpoint(10_000, 9_000, 1)) == 6_000
    assert rules.safe_timestamp(checkpoint(9_000, 10_000, 1)) == 6_000
    assert rules.safe_timestamp(checkpoint(2_999, 10_000)) == 0
    assert rules.safe_timestamp(None) == 0


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0, 0xDEADBEEF])
@pytest.mark.parametrize("stored", [0, -5, 99, 100, 101])
@pytest.mark.parametrize("profile", ALL)
def test_a_file_is_matched_by_magic_and_store_time(magic: int, stored: int, profile: Profile) -> None:
    known = magic == MAGIC_V1 or (magic == MAGIC_V2 and profile not in OLD)
    assert rules.is_matched_recover(FileHead(magic, stored), 100, profile) == (known and stored in (-5, 99, 100))


@pytest.mark.parametrize(("sys_flag", "magic"), [(0, MAGIC_V1), (BORN_V6, MAGIC_V1), (0, V2)])
def test_the_head_of_a_file_is_read_with_either_host(sys_flag: int, magic: int) -> None:
    raw = encode(Record(sys_flag=sys_flag, magic=magic, store_timestamp=12345), 0)
    assert rules.head_of_file(raw[:HEAD_SIZE].ljust(HEAD_SIZE, b"\0")) == FileHead(magic, 12345)
    assert rules.head_of_file(bytes(HEAD_SIZE)) == FileHead(0, 0)


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("profile", OLD)
@pytest.mark.parametrize("queues_end", [NO_QUEUE, 0, 4500])
def test_4_begins_a_normal_recovery_at_the_third_file_from_the_end(
    count: int, profile: Profile, queues_end: int
) -> None:
    found = rules.start_file(Mode.NORMAL, profile, BASES[:count], queues_end, lambda _: True)
    assert found.number == max(count - 3, 0)
    assert found.why


@pytest.mark.parametrize(
    ("queues_end", "number"), [(NO_QUEUE, 0), (0, 0), (999, 0), (1000, 1), (3999, 3), (4000, 4), (99_999, 4)]
)
def test_5_begins_a_normal_recovery_where_the_queues_end(queues_end: int, number: int) -> None:
    assert rules.start_file(Mode.NORMAL, PROFILE_5_3, BASES, queues_end, lambda _: True).number == number
    expired = [base + 5000 for base in BASES]
    assert rules.start_file(Mode.NORMAL, PROFILE_5_3, expired, 4999, lambda _: True).number == 0


@pytest.mark.parametrize("matching", [set(), {0}, {2}, {0, 2}, {4}, {1, 3}])
@pytest.mark.parametrize("profile", ALL)
def test_an_abnormal_recovery_begins_at_the_last_file_that_matches(matching: set[int], profile: Profile) -> None:
    found = rules.start_file(Mode.ABNORMAL, profile, BASES, 4500, matching.__contains__)
    assert found.number == max(matching, default=0)
    assert ("no file" in found.why) == (not matching)


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("queues_end", [NO_QUEUE, 0, 777])
def test_what_the_scan_dispatches(profile: Profile, queues_end: int) -> None:
    assert rules.dispatches_from(Mode.ABNORMAL, profile, queues_end) == EVERYTHING
    assert rules.dispatches_from(Mode.NORMAL, profile, queues_end) == (queues_end + 1 if profile not in OLD else None)


def test_queues_are_cut_only_where_they_reach_the_logs_end() -> None:
    assert [rules.cuts_queues(queues_end, 500) for queues_end in (NO_QUEUE, 499, 500, 501)] == [
        False,
        False,
        True,
        True,
    ]


def test_start_dispatches_from_the_queues_end_but_not_before_the_log() -> None:
    assert [rules.reput_from(*bounds) for bounds in ((-1, 0), (70, 0), (70, 1000), (1070, 1000))] == [0, 70, 1000, 1070]


@pytest.mark.parametrize(
    ("start", "end", "gap"),
    [
        (0, 0, None),
        (5, 3000, None),
        (5, 3001, 3000),
        (3500, 3600, 3500),
        (3500, 3500, None),
        (3500, 5000, 3500),
        (4000, 5000, None),
    ],
)
def test_the_first_offset_that_no_file_has(start: int, end: int, gap: int | None) -> None:
    extents = [(0, 1000), (1000, 2000), (2000, 3000), (4000, 5000)]
    assert rules.first_gap(extents, start, end) == gap


@pytest.mark.parametrize(
    ("mode", "end", "point"), list(itertools.product(Mode, (99, 100, 101), (checkpoint(0, 0, 100), None)))
)
def test_an_index_file_beyond_the_checkpoint_goes_with_abort(mode: Mode, end: int, point: Checkpoint | None) -> None:
    expected = mode is Mode.ABNORMAL and (point is None or end > 100)
    assert rules.is_index_dropped(mode, end, point) == expected


class Units:
    """A queue of files of ten units, by the physical offsets of all its units."""

    def __init__(self, physical_offsets: list[int], first: int = 0, min_offset: int = 0) -> None:
        self._units = physical_offsets
        self.first = first
        self.min_offset = min_offset

    @property
    def max_offset(self) -> int:
        return self.first + len(self._units)

    @property
    def readable(self) -> int:
        return min(len(self._units), 10)

    @property
    def last_readable(self) -> int:
        return len(self._units) % 10

    def physical_offset(self, queue_offset: int) -> int:
        return self._units[queue_offset - self.first]

    def first_reaching(self, start: int, end: int, bound: int) -> int | None:
        return next((at for at in range(start, end) if self.physical_offset(at) >= bound), None)


RISING = [100 * n for n in range(25)]


@pytest.mark.parametrize(
    ("units", "log_start", "by_4", "by_5"),
    [
        (Units(RISING), 0, 0, 0),
        (Units(RISING), 1, 1, 1),
        (Units(RISING), 100, 1, 1),
        (Units(RISING), 450, 5, 5),
        (Units(RISING), 900, 9, 9),
        (Units(RISING), 901, 0, 0),  # the first file has none: expiry deletes such files later
        (Units(RISING), 2400, 0, 0),
        (Units(RISING), 2401, 0, 25),  # nothing left
        (Units(RISING[:7]), 601, 0, 7),
        (Units(RISING, first=30), 450, 35, 35),
        (Units(RISING, first=30), 0, 30, 30),
        (Units([0, 0, 0, 300, 400], min_offset=3), 0, 0, 3),  # pre-blank units count in 4.x
        (Units([0, 0, 0, 300, 400], min_offset=3), 300, 3, 3),
        (Units([0, 0, 0, 300, 400], min_offset=3), 301, 4, 4),
    ],
)
def test_min_offsets(units: Units, log_start: int, by_4: int, by_5: int) -> None:
    found = [rules.correct_min_offset(units, log_start, profile) for profile in ALL]
    assert found == [by_4, by_4, by_5, by_5]


def test_a_queue_whose_last_file_is_empty_stops_5() -> None:
    assert [bool(rules.empty_last_file_refusal(Units(RISING[:20]), profile)) for profile in ALL] == [
        False,
        False,
        True,
        True,
    ]
    assert rules.empty_last_file_refusal(Units([]), PROFILE_5_3) is None
    assert rules.empty_last_file_refusal(Units(RISING), PROFILE_5_3) is None


def test_the_docstring_shows_the_rows_of_the_table() -> None:
    table = rules.__doc__ or ""
    for words in (
        "the third file from the end",
        "the queues' end",
        "dispatch all good records",
        "**the log ends here**",
        "waits",
    ):
        assert words in table
