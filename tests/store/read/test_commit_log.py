from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.host import Host
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.store.read.commit_log import PROGRESS_BYTES, CommitLog, ScanSummary
from rmqctl.store.read.file_scan import ScanItem
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import expected
from tests.support.cqext_store import SMALL_NAMES
from tests.support.log_maker import BLANK, BORN_V6, STORE_V6, V2, Record, encode, log_bytes, sample_records
from tests.support.memory_storage import FailingStorage, memory_queue
from tests.support.property_settings import PROPERTY

SIZE = 1000
RECORD = Record(body=b"hello")
RECORD_SIZE = len(encode(RECORD, 0))
SEVERAL = [RECORD] * 3
STALE = b"\xee"


def blank(room: int) -> bytes:
    """A blank with stale bytes after it, as brokers up to 4.9.0 leave them."""
    return struct.pack(">iI", room, BLANK) + STALE * (room - 8)


def closed(base: int, records: list[Record] = SEVERAL, size: int = SIZE) -> bytes:
    """A file that is full: records and a blank."""
    data = log_bytes(records, base)
    return data + blank(size - len(data))


def open_file(base: int, records: list[Record] = SEVERAL, size: int = SIZE) -> bytes:
    """The last file: records and zeros."""
    return log_bytes(records, base).ljust(size, b"\0")


def log_of(files: dict[int, bytes], configured: int | None = None) -> CommitLog:
    return CommitLog(memory_queue(files, configured))


def told(items: list[ScanItem]) -> list[tuple[str, int, int]]:
    """(kind or damage code, start, end) of items."""
    return [
        (item.code if isinstance(item, Damage) else type(item).__name__, item.physical_offset, item.end)
        for item in items
    ]


def damage(log: CommitLog) -> list[tuple[str, int, int]]:
    """(code, start, end) of the damage that a lenient scan finds."""
    return [found for found in told(list(log.scan())) if found[0] not in {"Message", "Blank"}]


def assert_tiles(items: list[ScanItem], start: int) -> None:
    """Each item begins where the one before ends."""
    assert [item.physical_offset for item in items] == [start, *(item.end for item in items[:-1])][: len(items)]


def test_a_clean_log_is_messages_and_blanks_without_a_gap() -> None:
    items = list(log_of({0: closed(0), 1000: closed(1000), 2000: open_file(2000)}).scan())
    assert_tiles(items, 0)
    assert [kind for kind, _, _ in told(items)] == [*["Message"] * 3, "Blank"] * 2 + ["Message"] * 3
    assert items[-1].end == 2000 + 3 * RECORD_SIZE


@pytest.mark.parametrize("tail", [b"\0", STALE])
def test_stale_bytes_behind_a_blank_are_no_damage(tail: bytes) -> None:
    data = log_bytes(SEVERAL)
    data += struct.pack(">iI", SIZE - len(data), BLANK)
    assert damage(log_of({0: data.ljust(SIZE, tail), 1000: open_file(1000)})) == []


def test_a_blank_may_be_eight_bytes() -> None:
    data = log_bytes(SEVERAL) + blank(8)
    assert damage(log_of({0: data})) == []


@pytest.mark.parametrize("change", [-1, 1])
def test_a_blank_of_a_wrong_size_ends_its_file(change: int) -> None:
    room = SIZE - RECORD_SIZE
    data = encode(RECORD, 0) + struct.pack(">iI", room + change, BLANK) + STALE * (room - 8)
    assert damage(log_of({0: data, 1000: open_file(1000)})) == [("bad-blank-size", RECORD_SIZE, SIZE)]


def test_a_zero_tail_is_the_end_of_the_log() -> None:
    summary = ScanSummary()
    items = list(log_of({0: open_file(0)}).scan(summary))
    assert items[-1].end == summary.ok_up_to == summary.end == summary.bytes_scanned == 3 * RECORD_SIZE
    assert (summary.damages, summary.incomplete, summary.stopped) == (0, False, "end of the log")


def test_a_pre_allocated_file_is_no_part_of_the_log() -> None:
    log = log_of({0: closed(0), 1000: open_file(1000), 2000: bytes(SIZE)})
    assert damage(log) == []
    assert [file.file_from_offset for file in log.files_in_use()] == [0, 1000]


def test_a_log_of_zeros_is_empty() -> None:
    summary = ScanSummary()
    log = log_of({0: bytes(SIZE), 1000: bytes(SIZE)})
    assert list(log.scan(summary)) == []
    assert (summary.end, log.end(), log.files_in_use()) == (0, (0, None), [])


def test_without_files_a_scan_says_so() -> None:
    summary = ScanSummary()
    assert list(log_of({}).scan(summary)) == []
    assert (summary.bytes_scanned, summary.stopped) == (0, "there is no commit log file")


def test_zeros_with_records_behind_them_are_a_hole() -> None:
    at = RECORD_SIZE + 200
    data = encode(RECORD, 0) + bytes(200) + encode(RECORD, at)
    items = list(log_of({0: data.ljust(SIZE, b"\0")}).scan())
    assert told(items) == [("Message", 0, RECORD_SIZE), ("hole", RECORD_SIZE, at), ("Message", at, at + RECORD_SIZE)]


def test_zeros_with_other_bytes_behind_them_end_the_log_and_are_told() -> None:
    data = (encode(RECORD, 0) + bytes(100) + b"stale").ljust(SIZE, b"\0")
    assert damage(log_of({0: data})) == [("bytes-behind-end", RECORD_SIZE, RECORD_SIZE + 105)]


def test_a_stale_record_behind_the_end_is_no_record() -> None:
    data = (encode(RECORD, 0) + bytes(8) + encode(RECORD, 7777)).ljust(SIZE, b"\0")
    assert damage(log_of({0: data})) == [("bytes-behind-end", RECORD_SIZE, 2 * RECORD_SIZE + 8)]


@pytest.mark.parametrize("room", range(8))
def test_a_file_that_is_full_without_a_blank_is_told(room: int) -> None:
    data = log_bytes(SEVERAL) + STALE * room
    size = len(data)
    items = list(log_of({0: data, size: open_file(size, [RECORD], size)}).scan())
    assert_tiles(items, 0)
    assert told(items)[3:] == [("no-blank", 3 * RECORD_SIZE, size), ("Message", size, size + RECORD_SIZE)]


def test_zeros_in_place_of_a_blank_are_told_when_the_log_goes_on() -> None:
    items = list(log_of({0: open_file(0), 1000: open_file(1000)}).scan())
    assert_tiles(items, 0)
    assert told(items)[3] == ("no-blank", 3 * RECORD_SIZE, 1000)


def test_zeros_up_to_a_file_after_the_next_are_one_damage() -> None:
    log = log_of({0: open_file(0), 1000: bytes(SIZE), 2000: open_file(2000)})
    assert damage(log) == [("no-blank", 3 * RECORD_SIZE, 2000)]


def test_a_missing_file_is_a_gap_of_its_size() -> None:
    items = list(log_of({0: closed(0), 2000: open_file(2000)}, SIZE).scan())
    assert_tiles(items, 0)
    assert told(items)[4] == ("file-gap", 1000, 2000)


def test_a_file_that_begins_inside_another_is_an_overlap() -> None:
    assert ("file-overlap", 900, 1000) in damage(log_of({0: closed(0), 900: open_file(900)}, SIZE))


@pytest.mark.parametrize("size", [RECORD_SIZE, 2 * RECORD_SIZE + 50])
def test_a_file_that_was_cut_has_the_wrong_length(size: int) -> None:
    items = list(log_of({0: closed(0), 1000: closed(1000)[:size], 2000: open_file(2000)}).scan())
    assert ("file-length", 1000 + size, 2000) in told(items)
    assert [item.physical_offset for item in items if isinstance(item, Message)][-3:] == [
        2000 + i * RECORD_SIZE for i in range(3)
    ]


def test_an_empty_last_file_has_the_wrong_length() -> None:
    assert damage(log_of({0: closed(0), 1000: b""})) == [("file-length", 1000, 2000)]


def test_the_damage_of_a_record_ends_at_the_next_one() -> None:
    data = bytearray(open_file(0))
    data[RECORD_SIZE + 4] ^= 1
    items = list(log_of({0: bytes(data)}).scan())
    assert_tiles(items, 0)
    assert told(items)[1] == ("bad-magic", RECORD_SIZE, 2 * RECORD_SIZE)


def test_the_damage_of_the_last_record_ends_behind_its_own_claim() -> None:
    data = bytearray(open_file(0, [Record(body=bytes(100), properties=b"", topic="T")]))
    struct.pack_into(">i", data, 84, -1)
    struct.pack_into(">b", data, 188, 0)
    assert damage(log_of({0: bytes(data)})) == [("bad-length", 0, 192)]


def test_a_lying_size_does_not_lead_past_the_records_behind_it() -> None:
    data = bytearray(open_file(0))
    struct.pack_into(">i", data, 0, 2 * RECORD_SIZE)
    assert told(list(log_of({0: bytes(data)}).scan()))[:2] == [
        ("bad-length", 0, RECORD_SIZE),
        ("Message", RECORD_SIZE, 2 * RECORD_SIZE),
    ]


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0, 90])
def test_an_impossible_size_costs_one_record(size: int) -> None:
    data = bytearray(open_file(0))
    struct.pack_into(">i", data, RECORD_SIZE, size)
    assert damage(log_of({0: bytes(data)})) == [("bad-size", RECORD_SIZE, 2 * RECORD_SIZE)]


def test_a_broken_body_costs_its_record_and_no_more() -> None:
    data = bytearray(open_file(0))
    data[RECORD_SIZE + 88] ^= 1
    summary = ScanSummary()
    items = list(log_of({0: bytes(data)}).scan(summary))
    assert told(items)[1] == ("bad-body-crc", RECORD_SIZE, 2 * RECORD_SIZE)
    assert (summary.messages, summary.damages, summary.ok_up_to, summary.end) == (2, 1, RECORD_SIZE, 3 * RECORD_SIZE)


def test_strict_stops_behind_the_first_damage_and_says_why() -> None:
    data = bytearray(closed(0))
    data[RECORD_SIZE + 88] ^= 1
    summary = ScanSummary()
    items = list(log_of({0: bytes(data), 1000: open_file(1000)}).scan(summary, strict=True))
    assert [kind for kind, _, _ in told(items)] == ["Message", "bad-body-crc"]
    assert summary.stopped == f"bad-body-crc at {RECORD_SIZE}"


def test_a_scan_that_is_given_up_says_that_it_was_interrupted() -> None:
    summary = ScanSummary()
    next(log_of({0: open_file(0)}).scan(summary))
    assert summary.stopped == "interrupted"


def test_a_scan_may_begin_at_a_record() -> None:
    items = list(log_of({0: closed(0), 1000: open_file(1000)}).scan(start=1000))
    assert_tiles(items, 1000)
    assert len(items) == 3


@pytest.mark.parametrize("start", range(0, 2 * RECORD_SIZE, 7))
def test_a_scan_from_inside_a_record_begins_with_the_next(start: int) -> None:
    log = log_of({0: closed(0), 1000: open_file(1000)})
    assert told(list(log.scan(start=start))) == [found for found in told(list(log.scan())) if found[1] >= start]


def test_a_scan_from_behind_the_log_finds_nothing() -> None:
    summary = ScanSummary()
    assert list(log_of({0: open_file(0)}).scan(summary, start=5000)) == []
    assert summary.ok_up_to == 5000


def test_progress_is_told_every_few_mebibytes() -> None:
    heard: list[int] = []
    data = log_bytes([Record(body=bytes(1024 * 1024))] * 9)
    log = log_of({0: data + blank(8)})
    log.on_progress = heard.append
    list(log.scan())
    assert len(heard) == 3
    assert all(PROGRESS_BYTES <= done < 2 * PROGRESS_BYTES for done in heard[:2])
    assert sum(heard) == len(data) + 8


@pytest.mark.parametrize(
    ("position", "readable_again"),
    [(0, 1000 + RECORD_SIZE), (RECORD_SIZE + 10, 2000), (2 * RECORD_SIZE, 1000 + 3 * RECORD_SIZE)],
)
def test_what_cannot_be_read_is_damage_and_the_rest_is_read(tmp_path: Path, position: int, readable_again: int) -> None:
    for base in (0, 1000, 2000):
        (tmp_path / f"{base:020d}").write_bytes(closed(base))
    summary = ScanSummary()
    log = CommitLog(MappedFileQueue(FailingStorage(tmp_path, f"{1000:020d}", position), [tmp_path]))
    items = list(log.scan(summary))
    assert_tiles(items, 0)
    unreadable = [item for item in items if isinstance(item, Damage)]
    assert [(item.code, item.end, item.path) for item in unreadable] == [("unreadable", readable_again, f"{1000:020d}")]
    assert "Input/output error" in unreadable[0].detail
    assert summary.incomplete
    assert isinstance(items[-1], Blank)
    assert items[-1].end == 3000


def test_looking_at_an_unreadable_file_is_damage(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(closed(0))
    found = CommitLog(MappedFileQueue(FailingStorage(tmp_path, f"{0:020d}"), [tmp_path])).at(0)
    assert isinstance(found, Damage)
    assert (found.code, found.size) == ("unreadable", SIZE)


def test_the_files_of_several_folders_are_one_log(tmp_path: Path) -> None:
    for name, base in (("a", 0), ("b", 1000), ("a", 2000), ("b", 3000)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"{base:020d}").write_bytes(closed(base))
    log = CommitLog(MappedFileQueue(FailingStorage(tmp_path, "none"), [tmp_path / "a", tmp_path / "b"]))
    items = list(log.scan())
    assert_tiles(items, 0)
    assert (len(items), damage(log), log.path_of(1500)) == (16, [], f"b/{1000:020d}")


@pytest.mark.parametrize(
    "records",
    [
        sample_records(12),
        sample_records(12, magic=V2),
        sample_records(12, sys_flag=BORN_V6 | STORE_V6),
        sample_records(12, property_crc=True),
    ],
    ids=["v1", "v2", "ipv6", "property-crc"],
)
def test_every_kind_of_record_is_read(records: list[Record]) -> None:
    items = list(log_of({0: open_file(0, records, 8000)}).scan())
    assert_tiles(items, 0)
    assert [bytes(item.body) for item in items if isinstance(item, Message)] == [record.body for record in records]


def test_a_record_of_the_log_is_found_by_its_offset() -> None:
    log = log_of({0: closed(0), 1000: open_file(1000)})
    found = log.at(1000 + RECORD_SIZE)
    assert isinstance(found, Message)
    assert log.message_at(1000 + RECORD_SIZE) == found
    assert log.at(3 * RECORD_SIZE) == Blank(3 * RECORD_SIZE, SIZE - 3 * RECORD_SIZE)
    assert log.message_at(3 * RECORD_SIZE) is None
    assert log.at(1000 + 3 * RECORD_SIZE) is None


@pytest.mark.parametrize("offset", [-1, 2000, 2**63])
def test_an_offset_that_no_file_holds_is_outside_the_log(offset: int) -> None:
    found = log_of({0: closed(0), 1000: open_file(1000)}).at(offset)
    assert isinstance(found, Damage)
    assert found.code == "outside-log"


def test_a_message_with_a_broken_body_is_still_told() -> None:
    data = bytearray(open_file(0))
    data[88] ^= 1
    found = log_of({0: bytes(data)}).message_at(0)
    assert found is not None
    assert bytes(found.body) == b"iello"


def test_size_and_beginning_are_those_of_the_files() -> None:
    log = log_of({1000: closed(1000), 2000: bytes(SIZE)})
    assert (log.size, log.min_offset) == (2000, 1000)


@pytest.mark.parametrize("hint", [None, 0, 1000, 1000 + RECORD_SIZE, 1000 + RECORD_SIZE + 1, 999_999])
def test_the_end_is_found_with_or_without_a_hint(hint: int | None) -> None:
    end, last = log_of({0: closed(0), 1000: open_file(1000), 2000: bytes(SIZE)}).end(hint)
    assert end == 1000 + 3 * RECORD_SIZE
    assert last is not None
    assert last.physical_offset == 1000 + 2 * RECORD_SIZE


def test_the_end_of_a_full_log_is_behind_its_blank() -> None:
    end, last = log_of({0: closed(0)}).end()
    assert end == SIZE
    assert last is not None
    assert last.physical_offset == 2 * RECORD_SIZE


def test_an_offset_behind_the_log_has_the_path_of_the_last_file() -> None:
    log = log_of({1000: closed(1000)})
    assert (log.path_of(99_999), log.path_of(10)) == (f"commitlog/{1000:020d}", "")


FRAGMENTS = st.lists(
    st.binary(max_size=30)
    | st.integers(0, 600).map(lambda at: encode(Record(body=b"", topic="T"), at))
    | st.integers(0, 60).map(bytes)
    | st.integers(-1, 300).map(lambda size: struct.pack(">iI", size, BLANK)),
    max_size=8,
).map(b"".join)


@PROPERTY
@given(FRAGMENTS, FRAGMENTS, st.none() | st.integers(0, 700), st.booleans())
def test_a_scan_of_random_bytes_never_raises_and_always_advances(
    first: bytes, second: bytes, start: int | None, strict: bool
) -> None:
    size = max(len(first), len(second), 1)
    log = log_of({0: first.ljust(size, b"\0"), size: second.ljust(size, b"\0")}, size)
    items = []
    for item in log.scan(start=start, strict=strict):
        items.append(item)
        assert len(items) <= 2 * size, "the scan does not end"
    assert all(before.end <= after.physical_offset for before, after in pairwise(items))
    assert all(item.end <= 2 * size for item in items)


@PROPERTY
@given(st.data())
def test_the_items_of_a_damaged_log_tile_it(data: st.DataObject) -> None:
    files = {base: bytearray(closed(base)) for base in (0, 1000)} | {2000: bytearray(open_file(2000))}
    for _ in range(data.draw(st.integers(0, 5))):
        base = data.draw(st.sampled_from([0, 1000, 2000]))
        position = data.draw(st.integers(0, SIZE - 60))
        garbage = data.draw(st.binary(max_size=4) | st.integers(0, 50).map(bytes))
        files[base][position : position + len(garbage)] = garbage
    summary = ScanSummary()
    items = list(log_of({base: bytes(file) for base, file in files.items()}).scan(summary))
    assert_tiles(items, 0)
    assert summary.bytes_scanned == sum(item.size for item in items)
    assert (summary.messages, summary.blanks) == (
        sum(isinstance(i, Message) for i in items),
        sum(isinstance(i, Blank) for i in items),
    )


@PROPERTY
@given(st.data())
def test_strict_sees_what_lenient_sees_up_to_the_first_damage(data: st.DataObject) -> None:
    file = bytearray(closed(0))
    for _ in range(data.draw(st.integers(0, 3))):
        file[data.draw(st.integers(0, SIZE - 60))] = data.draw(st.integers(0, 255))
    log = log_of({0: bytes(file), 1000: open_file(1000)})
    lenient = told(list(log.scan()))
    first = next((at for at, found in enumerate(lenient) if found[0] not in {"Message", "Blank"}), len(lenient))
    assert told(list(log.scan(strict=True))) == lenient[: first + 1]


def test_a_log_that_turns_to_zeros_before_a_records_properties_keeps_the_records_before() -> None:
    whole = open_file(0)
    covered = RECORD_SIZE - len(RECORD.properties)
    for cut in (at for at in range(3 * RECORD_SIZE) if at % RECORD_SIZE < covered):
        items = list(log_of({0: whole[:cut].ljust(SIZE, b"\0")}).scan())
        assert sum(isinstance(item, Message) for item in items) == cut // RECORD_SIZE
        assert_tiles(items, 0)


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_a_golden_log_is_whole_and_ends_where_the_broker_says(name: str, golden: Callable[[str], Path]) -> None:
    summary = ScanSummary()
    log = ReadOnlyStore(golden(name)).commit_log
    items = list(log.scan(summary))
    broker = expected(name)
    assert_tiles(items, broker["minPhyOffset"])
    assert (summary.damages, summary.ok_up_to, log.end()[0]) == (0, broker["maxPhyOffset"], broker["maxPhyOffset"])


def host_of(text: str) -> Host:
    """A host as Java writes it."""
    address, port = text.rsplit(":", 1)
    return Host(ip_address(address).packed, int(port))


def camel(message: Message) -> dict[str, object]:
    """A message under the keys of the golden files."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.size,
        "bodyCrc": message.body_crc,
        "bodyLength": len(message.body),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
        "properties": message.properties,
    }


@pytest.mark.parametrize(
    "name", ["326-basic", "471-ipv6", "497-batch", "533-longtopic", "533-propcrc", "broker-533-kill"]
)
def test_every_message_of_the_broker_is_read_in_full(name: str, golden: Callable[[str], Path]) -> None:
    messages = {
        item.physical_offset: camel(item)
        for item in ReadOnlyStore(golden(name)).commit_log.scan()
        if isinstance(item, Message)
    }
    for wanted in expected(name)["messages"]:
        found = messages[wanted["physicalOffset"]]
        hosts = {key: host_of(wanted[key]) for key in ("bornHost", "storeHost")}
        assert found == {key: wanted[key] for key in found} | hosts
