"""Log against index: each damage of an index file is found at its header field, slot or entry."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.forensics.verify import LEVEL_QUEUES, verify
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, expected
from tests.support.file_edits import peek, poke
from tests.support.verified_by_tasks import Said, said

FIRST = "index/20261121091529472"
SECOND = "index/20261121091529598"
FILES = (FIRST, SECOND)
FILE_SIZE = 8440
SLOTS = 100
ENTRY = 20
ENTRIES_AT = 40 + 4 * SLOTS
COUNTS = {FIRST: 399, SECOND: 113}
BEGIN_TIMESTAMP, END_TIMESTAMP, BEGIN_PHY_OFFSET, END_PHY_OFFSET, HASH_SLOT_COUNT, INDEX_COUNT = 0, 8, 16, 24, 32, 36
KEY_HASH, PHY_OFFSET, TIME_DIFF, PREV_INDEX = 0, 4, 12, 16
HIGH_BIT = 1 << 40
DAY_MS = 86_400_000


def entry_at(number: int) -> int:
    return ENTRIES_AT + number * ENTRY


def has_keys(message: dict[str, dict[str, str]]) -> bool:
    return bool(message["properties"].get("UNIQ_KEY") or message["properties"].get("KEYS", "").split())


def with_keys(name: str) -> dict[int, int]:
    """Physical offset -> size of the messages with keys."""
    return {message["physicalOffset"]: message["size"] for message in expected(name)["messages"] if has_keys(message)}


@pytest.mark.parametrize(
    "name",
    [
        "326-basic",
        "326-tx-crash",
        "471-batch",
        "471-tx",
        "497-basic",
        "533-basic",
        "533-lmq",
        "broker-497",
        "broker-533",
    ],
)
def test_a_healthy_index_has_no_finding(name: str, golden: Golden) -> None:
    root = golden(name)
    assert {finding for finding in said(root) if finding.code != "abort"} == set()
    assert len(list((root / "index").iterdir())) > 0


# --- length


@pytest.mark.parametrize("size", [0, 39])
def test_a_file_without_a_header_indexes_nothing(basic: Path, size: int) -> None:
    (basic / SECOND).write_bytes((basic / SECOND).read_bytes()[:size])
    found = said(basic)
    assert found == {Said("index-length", SECOND, 0)}


def test_an_only_file_that_is_empty_is_said_to_be_so(basic: Path) -> None:
    for name in FILES:
        (basic / name).write_bytes(b"")
    queue = basic / "consumequeue/OrderPaid/0"
    for path in queue.iterdir():
        path.write_bytes(b"")
    details = {
        finding.path: finding.detail
        for finding in verify(ReadOnlyStore(basic)).findings
        if finding.code.endswith("-length")
    }
    assert [details.pop(name) for name in FILES] == ["the file is empty: no index file has this length"] * 2
    assert details
    assert all(
        detail.startswith("the file is empty") and "0 bytes" not in detail.split() for detail in details.values()
    )


@pytest.mark.parametrize(("value", "before"), [(0, 0), (1, 0), (0, 999)])
def test_a_file_without_an_entry(value: int, before: int, basic: Path) -> None:
    """4.x leaves indexCount 0 there, 5.3.3 leaves 1; a file that is not the first begins where the one
    before it ends.
    """
    (end_time,) = peek(basic / SECOND, END_TIMESTAMP, "q")
    (end_offset,) = peek(basic / SECOND, END_PHY_OFFSET, "q")
    with_begin = (end_time, end_time, end_offset, end_offset) if before else (0, 0, 0, 0)
    (basic / "index/20261121091530000").write_bytes(struct.pack(">4q2i", *with_begin, 0, value).ljust(FILE_SIZE, b"\0"))
    assert said(basic) == set()


# --- header


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("field", [BEGIN_PHY_OFFSET, END_PHY_OFFSET])
@pytest.mark.parametrize("difference", [-1, 1, HIGH_BIT])
def test_an_offset_of_the_header(basic: Path, name: str, field: int, difference: int) -> None:
    (value,) = peek(basic / name, field, "q")
    poke(basic / name, field, "q", value + difference)
    assert said(basic) == {Said("index-header", name, field)}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("value", [-1, 0, 1, 2**31 - 1])
def test_the_slots_of_the_header(basic: Path, name: str, value: int) -> None:
    poke(basic / name, HASH_SLOT_COUNT, "i", value)
    assert said(basic) == {Said("index-header", name, HASH_SLOT_COUNT)}


def test_the_slots_of_3x_are_its_entries(golden: Golden) -> None:
    root = golden("326-basic")
    name = min((root / "index").iterdir())
    (count,) = peek(name, HASH_SLOT_COUNT, "i")
    (index_count,) = peek(name, INDEX_COUNT, "i")
    assert count == index_count - 1


@pytest.mark.parametrize("name", FILES)
def test_a_begin_after_the_end(basic: Path, name: str) -> None:
    (end,) = peek(basic / name, END_TIMESTAMP, "q")
    poke(basic / name, BEGIN_TIMESTAMP, "q", end + 1)
    assert said(basic) == {Said("index-header", name, BEGIN_TIMESTAMP)}


@pytest.mark.parametrize("name", FILES)
def test_an_end_before_the_begin_is_a_contradiction_in_the_header(basic: Path, name: str) -> None:
    poke(basic / name, END_TIMESTAMP, "q", 0)
    found = said(basic)
    assert {(finding.code, finding.path, finding.count) for finding in found} == {("index-header", name, 1)}
    assert {finding.file_offset for finding in found} <= {BEGIN_TIMESTAMP, END_TIMESTAMP}


@pytest.mark.parametrize("name", FILES)
def test_a_begin_a_day_too_early_is_one_finding(basic: Path, name: str) -> None:
    (begin,) = peek(basic / name, BEGIN_TIMESTAMP, "q")
    poke(basic / name, BEGIN_TIMESTAMP, "q", begin - DAY_MS)
    (finding,) = said(basic)
    all_times = Said("index-time", name, entry_at(2), count=COUNTS[name] - 1)
    assert finding in (Said("index-header", name, BEGIN_TIMESTAMP), all_times)


@pytest.mark.parametrize("value", [0, -1, 401, 2**31 - 1])
def test_an_index_count_that_the_file_has_no_room_for(basic: Path, value: int) -> None:
    poke(basic / FIRST, INDEX_COUNT, "i", value)
    assert Said("index-header", FIRST, INDEX_COUNT) in said(basic)


def test_an_index_count_above_its_room_hides_no_entry(basic: Path) -> None:
    poke(basic / FIRST, INDEX_COUNT, "i", 401)
    assert said(basic) == {Said("index-header", FIRST, INDEX_COUNT)}


def test_an_index_count_that_is_one_too_small_is_found(basic: Path) -> None:
    poke(basic / SECOND, INDEX_COUNT, "i", COUNTS[SECOND])
    found = said(basic)
    assert {finding.code for finding in found} <= {"index-header", "index-chain", "index-missing"}
    assert Said("index-header", SECOND, END_PHY_OFFSET) in found or Said("index-header", SECOND, INDEX_COUNT) in found


def test_an_index_count_that_is_one_too_large_is_found(basic: Path) -> None:
    poke(basic / SECOND, INDEX_COUNT, "i", COUNTS[SECOND] + 2)
    found = said(basic)
    assert found
    assert {finding.path for finding in found} == {SECOND}
    assert all(finding.count == 1 for finding in found)


# --- chains


@pytest.mark.parametrize(("name", "number"), [(FIRST, 1), (FIRST, 200), (FIRST, 399), (SECOND, 1), (SECOND, 113)])
@pytest.mark.parametrize("difference", [-1, 1, 1 << 20])
def test_an_entrys_predecessor(basic: Path, name: str, number: int, difference: int) -> None:
    (prev_index,) = peek(basic / name, entry_at(number) + PREV_INDEX, "i")
    poke(basic / name, entry_at(number) + PREV_INDEX, "i", prev_index + difference)
    assert said(basic) == {Said("index-chain", name, entry_at(number))}


def test_predecessors_of_neighbours_are_one_finding(basic: Path) -> None:
    for number in (200, 201, 202, 300):
        poke(basic / FIRST, entry_at(number) + PREV_INDEX, "i", 399)
    assert said(basic) == {
        Said("index-chain", FIRST, entry_at(200), count=3),
        Said("index-chain", FIRST, entry_at(300)),
    }


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("slot", [0, 47, 99])
def test_a_slot(basic: Path, name: str, slot: int) -> None:
    (number,) = peek(basic / name, 40 + 4 * slot, "i")
    poke(basic / name, 40 + 4 * slot, "i", number + 1)
    assert said(basic) == {Said("index-chain", name, 40 + 4 * slot)}


def test_a_slot_that_was_zeroed(basic: Path) -> None:
    (key_hash,) = peek(basic / FIRST, entry_at(399), "i")
    at = 40 + 4 * (key_hash % SLOTS)
    assert peek(basic / FIRST, at, "i") == (399,)
    poke(basic / FIRST, at, "i", 0)
    assert said(basic) == {Said("index-chain", FIRST, at)}


# --- entries


def test_a_keys_hash_of_the_same_slot(basic: Path) -> None:
    (key_hash, phy_offset) = peek(basic / FIRST, entry_at(200), "iq")
    poke(basic / FIRST, entry_at(200), "i", key_hash + SLOTS)
    found = said(basic)
    assert Said("index-dangling", FIRST, entry_at(200)) in found
    assert {(finding.code, finding.count) for finding in found} == {("index-dangling", 1), ("index-missing", 1)}
    assert phy_offset in with_keys("497-basic")


def test_an_entry_that_leads_beside_its_message(basic: Path) -> None:
    (phy_offset,) = peek(basic / FIRST, entry_at(200) + PHY_OFFSET, "q")
    poke(basic / FIRST, entry_at(200) + PHY_OFFSET, "q", phy_offset + 1)
    found = said(basic)
    assert Said("index-dangling", FIRST, entry_at(200)) in found
    assert {finding.code for finding in found} <= {"index-dangling", "index-missing", "index-order"}
    assert all(finding.count == 1 for finding in found)
    assert {finding.file_offset for finding in found if finding.path == FIRST} == {entry_at(200)}


@pytest.mark.parametrize(
    ("name", "number"), [(FIRST, 1), (FIRST, 2), (FIRST, 200), (FIRST, 398), (SECOND, 1), (SECOND, 113)]
)
def test_a_flipped_high_bit_in_an_entrys_offset_is_one_finding(basic: Path, name: str, number: int) -> None:
    (phy_offset,) = peek(basic / name, entry_at(number) + PHY_OFFSET, "q")
    poke(basic / name, entry_at(number) + PHY_OFFSET, "q", phy_offset | HIGH_BIT)
    found = {finding for finding in said(basic) if finding.code not in ("index-header", "index-missing")}
    assert {replace(finding, code="") for finding in found} == {Said("", name, entry_at(number))}
    assert len(found) == 1
    assert found.pop().code in ("index-dangling", "index-order")


@pytest.mark.parametrize("number", [200, 399])
def test_an_entry_that_goes_back_in_the_log_is_one_finding(basic: Path, number: int) -> None:
    poke(basic / FIRST, entry_at(number) + PHY_OFFSET, "q", 0)
    found = {finding for finding in said(basic) if finding.code not in ("index-header", "index-missing")}
    assert found == {Said("index-order", FIRST, entry_at(number))}


@pytest.mark.parametrize("number", [200, 398])
@pytest.mark.parametrize("phy_offset", [0, 1 << 40])
def test_an_entry_that_leads_astray_hides_at_most_its_own_message(basic: Path, number: int, phy_offset: int) -> None:
    (before,) = peek(basic / FIRST, entry_at(number) + PHY_OFFSET, "q")
    poke(basic / FIRST, entry_at(number) + PHY_OFFSET, "q", phy_offset)
    report = verify(ReadOnlyStore(basic))
    missing = [finding for finding in report.findings if finding.code == "index-missing"]
    assert [(finding.physical_offset, finding.count) for finding in missing] in ([], [(before, 1)])


@pytest.mark.parametrize(("name", "number"), [(FIRST, 2), (FIRST, 399), (SECOND, 2), (SECOND, 113)])
@pytest.mark.parametrize("time_diff", [-1, 1, 2**31 - 1])
def test_an_entrys_time(basic: Path, name: str, number: int, time_diff: int) -> None:
    poke(basic / name, entry_at(number) + TIME_DIFF, "i", time_diff)
    assert said(basic) == {Said("index-time", name, entry_at(number))}


def test_times_of_neighbours_are_one_finding(basic: Path) -> None:
    for number in range(100, 110):
        poke(basic / FIRST, entry_at(number) + TIME_DIFF, "i", 5)
    assert said(basic) == {Said("index-time", FIRST, entry_at(100), count=10)}


def test_the_first_entrys_time_counts_from_the_file_before_and_is_not_checked(basic: Path) -> None:
    poke(basic / SECOND, entry_at(1) + TIME_DIFF, "i", 3)
    assert said(basic) == set()


def test_entries_behind_the_end_of_the_log_dangle(basic: Path) -> None:
    log_end = 3 * 65536
    (basic / f"commitlog/{log_end:020d}").unlink()
    gone = [
        number
        for number in range(1, COUNTS[SECOND] + 1)
        if peek(basic / SECOND, entry_at(number) + PHY_OFFSET, "q")[0] >= log_end
    ]
    index_findings = {finding for finding in said(basic) if finding.code.startswith("index")}
    assert index_findings == {Said("index-dangling", SECOND, entry_at(gone[0]), count=len(gone))}


def test_entries_before_the_start_of_the_log_are_expired(basic: Path) -> None:
    (basic / f"commitlog/{0:020d}").unlink()
    assert {finding for finding in said(basic) if finding.code.startswith("index")} == set()


# --- missing


def test_no_index_at_all_is_one_finding(basic: Path) -> None:
    shutil.rmtree(basic / "index")
    messages = with_keys("497-basic")
    report = verify(ReadOnlyStore(basic))
    (finding,) = report.findings
    last = max(messages)
    assert (finding.code, finding.path, finding.physical_offset, finding.count) == (
        "index-missing",
        "index",
        min(messages),
        len(messages),
    )
    assert finding.size == last + messages[last] - min(messages)


def test_no_index_is_right_where_it_is_switched_off(basic: Path) -> None:
    shutil.rmtree(basic / "index")
    assert said(basic, conf=BrokerConf(index_enabled=False)) == set()


def test_a_lost_first_file(basic: Path) -> None:
    (basic / FIRST).unlink()
    (straddler,) = peek(basic / SECOND, entry_at(1) + PHY_OFFSET, "q")
    messages = with_keys("497-basic")
    count = sum(offset <= straddler for offset in messages)
    found = verify(ReadOnlyStore(basic)).findings
    assert [(finding.code, finding.physical_offset, finding.count) for finding in found] == [
        ("index-missing", 0, count)
    ]


def test_a_lost_last_file(basic: Path) -> None:
    (basic / SECOND).unlink()
    (straddler,) = peek(basic / FIRST, entry_at(399) + PHY_OFFSET, "q")
    count = sum(offset >= straddler for offset in with_keys("497-basic"))
    found = verify(ReadOnlyStore(basic)).findings
    assert [(finding.code, finding.physical_offset, finding.count) for finding in found] == [
        ("index-missing", straddler, count)
    ]


def test_a_stray_file_in_the_index_folder(basic: Path) -> None:
    (basic / "index/notes.txt").write_bytes(b"x")
    assert said(basic) == {Said("foreign-file", "index/notes.txt")}


def test_level_2_does_not_look_at_the_index(basic: Path) -> None:
    shutil.rmtree(basic / "index")
    assert said(basic, LEVEL_QUEUES) == set()


# endTimestamp is compared with beginTimestamp alone
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("difference", [-1, 1, DAY_MS])
def test_the_end_is_the_last_messages_time(basic: Path, name: str, difference: int) -> None:
    (end,) = peek(basic / name, END_TIMESTAMP, "q")
    poke(basic / name, END_TIMESTAMP, "q", end + difference)
    assert said(basic) == {Said("index-header", name, END_TIMESTAMP)}


# slots are told from the wrong length: everything in the file is garbage then
@pytest.mark.parametrize("missing", [20, 100, 2000])
def test_a_file_that_is_shorter_than_the_others(basic: Path, missing: int) -> None:
    (basic / SECOND).write_bytes((basic / SECOND).read_bytes()[: FILE_SIZE - missing])
    assert said(basic) == {Said("index-length", SECOND, 0)}


# the last entry of a file has no follower to be compared with: all of the next file is out of order then, and its
# messages "missing"
def test_a_flipped_high_bit_in_the_last_entry_of_a_file(basic: Path) -> None:
    (phy_offset,) = peek(basic / FIRST, entry_at(399) + PHY_OFFSET, "q")
    poke(basic / FIRST, entry_at(399) + PHY_OFFSET, "q", phy_offset | HIGH_BIT)
    found = {finding for finding in said(basic) if finding.code not in ("index-header", "index-missing")}
    assert {replace(finding, code="") for finding in found} == {Said("", FIRST, entry_at(399))}
    missing = [finding for finding in said(basic) if finding.code == "index-missing"]
    assert sum(finding.count for finding in missing) <= 1
