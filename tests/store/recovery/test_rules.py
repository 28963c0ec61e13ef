"""The rules of recovery, one by one, over every combination of what decides."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rmqctl.format.checkpoint import Checkpoint
from rmqctl.format.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rmqctl.format.profile import VERSIONS, StartRules, StartSettings, number_of, start_rules
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.replay import LoadedLog
from rmqctl.store.recovery.rules import EVERYTHING, HEAD_SIZE, NO_QUEUE, FileHead, FolderEntry, Mode
from tests.support.log_maker import BORN_V6, V2, Record, encode

ALL = tuple(map(start_rules, VERSIONS))
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


def since(first: str) -> set[StartRules]:
    return {start for start in ALL if number_of(start.version) >= number_of(first)}


def until(last: str) -> set[StartRules]:
    return {start for start in ALL if number_of(start.version) <= number_of(last)}


PASSING_OVER = until("4.4.0") | {start_rules("4.9.2")}  # of a file of a wrong length, and of all behind it
STRICT = set(ALL) - PASSING_OVER


@pytest.mark.parametrize(
    ("entries", "refused_by"),
    [
        ([], set()),
        ([WHOLE], set()),
        ([WHOLE, SHORT], STRICT),
        ([SHORT, EMPTY], STRICT),
        ([WHOLE, EMPTY], STRICT - since("5.1.3")),
        ([EMPTY._replace(name=f"{0:020d}"), WHOLE._replace(name=f"{1000:020d}")], STRICT),
        ([WHOLE, FOLDER], STRICT - since("5.1.0")),
        ([WHOLE, EMPTY, FOLDER], STRICT),  # then the empty file is not the last entry
        ([WHOLE, NO_OFFSET], set(ALL)),
        ([WHOLE, WHOLE._replace(name="9" * 20)], set(ALL)),  # more than Java's long
    ],
)
def test_what_does_not_load(entries: list[FolderEntry], refused_by: set[StartRules]) -> None:
    for start in ALL:
        refusal = rules.load_refusal(reversed(entries), SIZE, start)
        assert (refusal is not None) == (start in refused_by)
        if refusal:
            assert any(entry.name in refusal for entry in entries)
        passed_over = next((entry.name for entry in sorted(entries) if entry.size != SIZE), None)
        assert rules.loads_until(entries, SIZE, start) == (passed_over if start in PASSING_OVER else None)


def test_only_5_asks_topics_json_for_the_type_of_a_queue() -> None:
    for start in ALL:
        for folder, topic in itertools.product((True, False), (True, False)):
            refusal = rules.queue_type_refusal("T", is_batch_folder=folder, is_batch_topic=topic, rules=start)
            assert (refusal is not None) == (start in since("5.0.0") and folder != topic)


def test_safe_time_is_three_seconds_before_the_earlier_of_both() -> None:
    of = start_rules("5.3.3")
    assert rules.safe_timestamp(checkpoint(10_000, 9_000, 1), of) == 6_000
    assert rules.safe_timestamp(checkpoint(9_000, 10_000, 1), of) == 6_000
    assert rules.safe_timestamp(checkpoint(2_999, 10_000), of) == 0
    assert rules.safe_timestamp(None, of) == 0
    assert rules.safe_timestamp(checkpoint(9_000, 10_000, 1), start_rules("5.5.0")) == 10_000
    safely = start_rules("4.7.1", StartSettings(message_index_safe=True))
    assert rules.safe_timestamp(checkpoint(10_000, 9_000, 500), safely) == 500


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 0, 0xDEADBEEF])
@pytest.mark.parametrize("stored", [0, -5, 99, 100, 101])
def test_a_file_is_matched_by_magic_and_store_time(magic: int, stored: int) -> None:
    for start in ALL:
        known = magic == MAGIC_V1 or (magic == MAGIC_V2 and start in since("5.1.0"))
        head = FileHead(magic, stored)
        assert rules.is_known_head(head, start) == (known and stored != 0)
        point = checkpoint(3100, 100 if start in since("5.5.0") else 3100)
        assert rules.is_matched_recover(head, Mode.ABNORMAL, point, 0, start) == (stored <= 100)


def test_5_5_matches_a_file_by_logics_physical_offset() -> None:
    first, point = FileHead(MAGIC_V1, 999_999, 5000), checkpoint(1, 1)._replace(logics_physical_offset=5000)
    for start in ALL:
        found = rules.is_matched_recover(first, Mode.ABNORMAL, point, 0, start)
        assert found == (start in since("5.5.0"))
        assert not rules.is_matched_recover(first._replace(physical_offset=5001), Mode.ABNORMAL, point, 0, start)


@pytest.mark.parametrize(("sys_flag", "magic"), [(0, MAGIC_V1), (BORN_V6, MAGIC_V1), (0, V2)])
def test_the_head_of_a_file_is_read_with_either_host(sys_flag: int, magic: int) -> None:
    raw = encode(Record(sys_flag=sys_flag, magic=magic, store_timestamp=12345), 0)
    assert rules.head_of_file(raw[:HEAD_SIZE].ljust(HEAD_SIZE, b"\0"), start_rules("5.5.1")) == FileHead(magic, 12345)
    assert rules.head_of_file(bytes(HEAD_SIZE), start_rules("5.5.1")) == FileHead(0, 0)


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("queues_end", [NO_QUEUE, 0, 4500])
def test_until_5_3_1_begins_a_normal_recovery_at_the_third_file_from_the_end(count: int, queues_end: int) -> None:
    for start in sorted(until("5.3.1")):
        found = rules.start_file(Mode.NORMAL, start, BASES[:count], queues_end, lambda _: True)
        assert found.number == max(count - 3, 0)
        assert found.why


@pytest.mark.parametrize(
    ("queues_end", "number"), [(NO_QUEUE, 0), (0, 0), (999, 0), (1000, 1), (3999, 3), (4000, 4), (99_999, 4)]
)
def test_5_3_2_begins_a_normal_recovery_where_the_queues_end(queues_end: int, number: int) -> None:
    assert rules.start_file(Mode.NORMAL, start_rules("5.3.2"), BASES, queues_end, lambda _: True).number == number
    expired = [base + 5000 for base in BASES]
    assert rules.start_file(Mode.NORMAL, start_rules("5.3.2"), expired, 4999, lambda _: True).number == 0


@pytest.mark.parametrize("matching", [set(), {0}, {2}, {0, 2}, {4}, {1, 3}])
def test_an_abnormal_recovery_begins_at_the_last_file_that_matches(matching: set[int]) -> None:
    for start in ALL:
        found = rules.start_file(Mode.ABNORMAL, start, BASES, 4500, matching.__contains__)
        assert found.number == max(matching, default=0)
        assert ("no file" in found.why) == (not matching)
        if start in since("5.3.4"):
            assert rules.start_file(Mode.NORMAL, start, BASES, 4500, matching.__contains__).number == found.number


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("limit", "number"), [(10, 26), (3, 33), (36, 0), (100, 0), (0, 26)])
def test_5_4_reads_the_last_files_alone(mode: Mode, limit: int, number: int) -> None:
    bases, settings = [1000 * file for file in range(36)], StartSettings(recover_max_num=limit)
    for start in sorted(since("5.4.0")):
        found = rules.start_file(mode, start_rules(start.version, settings), bases, NO_QUEUE, lambda _: False)
        assert found.number == number
        assert ("commitLogRecoverMaxNum" in found.why) == (number > 0)
    before = rules.start_file(Mode.ABNORMAL, start_rules("5.3.4", settings), bases, NO_QUEUE, lambda _: False)
    assert before.number == 0


def test_settings_count_for_versions_that_know_them() -> None:
    said = StartSettings(
        force_verify_prop_crc=True, recheck_reput_offset=True, check_offset=True, accelerated=True, duplication=True
    )
    for version, verifies, rechecks, checks in (
        ("4.9.8", False, True, False), ("5.1.4", False, True, False), ("5.2.0", True, True, False),
        ("5.4.0", True, True, False), ("5.5.0", True, True, True),
    ):  # fmt: skip
        start = start_rules(version, said)
        assert (start.force_verify_prop_crc, start.dispatches_in_start) == (verifies, rechecks)
        assert (start.check_offset, start.accelerated) == (checks, checks)
        assert start.requires_dup_info == (version > "5")
        assert start_rules(version).dispatches_in_start == (version < "5")


def test_accelerated_recovery_needs_its_offset() -> None:
    """In the file where the scan begins: the real 5.5.0 fails to load with an offset after this file."""
    start = start_rules("5.5.1", StartSettings(accelerated=True))
    known = checkpoint(1, 1)._replace(logics_physical_offset=1234)
    assert rules.accelerated_refusal(Mode.ABNORMAL, checkpoint(1, 1), 2000, start)
    assert rules.accelerated_refusal(Mode.NORMAL, checkpoint(1, 1), 2000, start) is None
    assert rules.accelerated_refusal(Mode.ABNORMAL, known, 1234, start) is None
    assert rules.accelerated_refusal(Mode.ABNORMAL, known, 1233, start)
    assert rules.accelerated_refusal(Mode.NORMAL, known, 1233, start) is None
    assert rules.accelerated_refusal(Mode.ABNORMAL, checkpoint(0, 0), 2000, start) is None
    assert rules.scan_from(Mode.ABNORMAL, 1000, known, start) == 1234
    assert rules.scan_from(Mode.NORMAL, 1000, known, start) == 1000
    assert rules.scan_from(Mode.ABNORMAL, 1000, known, start_rules("5.5.1")) == 1000


@pytest.mark.parametrize("queues_end", [NO_QUEUE, 0, 777])
def test_what_the_scan_dispatches(queues_end: int) -> None:
    for start in ALL:
        dispatched = queues_end + 1 if start in since("5.3.2") else None
        assert rules.dispatches_from(Mode.ABNORMAL, start, queues_end) == EVERYTHING
        assert rules.dispatches_from(Mode.NORMAL, start, queues_end) == dispatched


@pytest.mark.parametrize("mode", Mode)
def test_queues_are_cut_where_they_reach_the_logs_end(mode: Mode) -> None:
    for start in ALL:
        for before, after in itertools.product((NO_QUEUE, 499, 500, 501), repeat=2):
            reached = (after if start in since("5.3.4") else before) >= 500
            expected = mode is Mode.ABNORMAL if start in until("4.3.1") else reached
            assert rules.cuts_queues(mode, start, before, after, 500) == expected


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
    files = [MappedFile(Storage(Path()), f"{base:020d}", base, 1000) for base in (0, 1000, 2000, 4000)]
    assert LoadedLog(files, 1000, start_rules("4.9.7")).first_gap(start, end) == gap


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
    for start in ALL:
        found = rules.correct_min_offset(units, log_start, start)
        assert found == (by_5 if start in since("5.0.0") else by_4)


def test_a_queue_whose_last_file_is_empty_stops_5_0_to_5_4() -> None:
    for start in ALL:
        refusal = rules.empty_last_file_refusal(Units(RISING[:20]), start)
        assert bool(refusal) == (start in since("5.0.0") & until("5.4.0"))
        assert rules.empty_last_file_refusal(Units([]), start) is None
        assert rules.empty_last_file_refusal(Units(RISING), start) is None
    assert rules.correct_min_offset(Units(RISING[:20]), 450, start_rules("5.5.0")) == 5


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
