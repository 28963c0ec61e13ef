from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.message import Blank, Damage, Message
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.record_reader import WINDOW_SIZE, RecordReader
from tests.support.log_maker import BLANK, V1, V2, Record, encode, log_bytes, sample_records
from tests.support.memory_storage import FOLDER, CountingStorage, MemoryStorage, memory_file
from tests.support.property_settings import PROPERTY

NAME = f"{0:020d}"


def reading(data: bytes, size: int | None = None) -> tuple[RecordReader, MemoryStorage]:
    """A reader of a file that has `data` and is said to have `size` bytes, and what counts its reads."""
    storage = MemoryStorage({NAME: data})
    return RecordReader(MappedFile(storage, FOLDER / NAME, 0, len(data) if size is None else size)), storage


def code_at(reader: RecordReader, position: int) -> str:
    found = reader.at(position)
    assert isinstance(found, Damage)
    return found.code


def starts(records: list[Record], base: int = 0) -> list[int]:
    """The position of each record."""
    positions, at = [], 0
    for record in records:
        positions.append(at)
        at += len(encode(record, base + at))
    return positions


def with_total_size(size: int, body_length: int, room: int) -> bytes:
    """A file of `room` bytes that begins with a record of zeros, lying about its size or not; its topic is empty, and
    so its properties.
    """
    head = struct.pack(">iI", size, V1) + bytes(76) + struct.pack(">i", body_length)
    return head + bytes(room - len(head))


def test_every_record_is_found_in_its_place() -> None:
    records = sample_records(20)
    reader, _ = reading(log_bytes(records))
    found = [reader.at(position) for position in starts(records)]
    assert [bytes(item.body) for item in found if isinstance(item, Message)] == [record.body for record in records]


def test_the_records_of_a_later_file_have_its_offset() -> None:
    found = RecordReader(memory_file(encode(Record(), 65536), 65536)).at(0)
    assert isinstance(found, Message)
    assert found.physical_offset == 65536


def test_a_file_is_read_in_one_window() -> None:
    records = sample_records(200)
    reader, storage = reading(log_bytes(records))
    for position in reversed(starts(records)):
        assert isinstance(reader.at(position), Message)
    assert storage.largest_read <= WINDOW_SIZE


def test_a_record_that_crosses_the_windows_end_is_whole() -> None:
    filler = Record(body=bytes(WINDOW_SIZE - 300), topic="T", properties=b"")
    records = [filler, Record(body=b"x" * 1000), Record(body=b"last")]
    data = log_bytes(records)
    positions = starts(records)
    assert positions[1] < WINDOW_SIZE < positions[2]
    reader, _ = reading(data)
    assert all(isinstance(reader.at(position), Message) for position in positions)
    assert [reader.next_record(position + 1) for position in positions] == [positions[1], positions[2], None]


@pytest.mark.parametrize("short_of_the_end", range(1, 13))
def test_a_record_whose_first_bytes_cross_the_windows_end_is_found(short_of_the_end: int) -> None:
    at = WINDOW_SIZE - short_of_the_end
    reader, _ = reading(bytes(at) + encode(Record(), at) + bytes(100))
    assert reader.next_record(0) == at


def test_a_record_larger_than_the_window_is_whole() -> None:
    record = Record(body=b"\x01" * (WINDOW_SIZE + 5000))
    data = encode(record, 0)
    reader, _ = reading(data + encode(Record(), len(data)))
    found = reader.at(0)
    assert isinstance(found, Message)
    assert found.body == record.body
    assert isinstance(reader.at(found.size), Message)


@pytest.mark.parametrize("magic", [V1, V2])
def test_a_record_larger_than_the_window_with_a_wrong_body_is_bad_body_crc(magic: int) -> None:
    data = bytearray(encode(Record(body=bytes(WINDOW_SIZE), magic=magic), 0))
    data[2_000_000] ^= 1
    assert code_at(reading(bytes(data))[0], 0) == "bad-body-crc"


@pytest.mark.parametrize("size", [2**31 - 1, -1, -(2**31), 0, 90])
def test_a_lying_total_size_is_bad_size(size: int) -> None:
    reader, storage = reading(with_total_size(size, 0, 1000))
    assert code_at(reader, 0) == "bad-size"
    assert storage.largest_read <= 1000


@pytest.mark.parametrize("body_length", [0, -1, -(2**31), 5_000_000 - 92, 5_000_000 - 90, 5_000_000, 2**31 - 1])
def test_a_lying_total_size_beyond_the_window_is_bad_length_and_read_no_further(body_length: int) -> None:
    reader, storage = reading(with_total_size(5_000_000, body_length, 6_000_000))
    assert code_at(reader, 0) == "bad-length"
    assert storage.largest_read <= WINDOW_SIZE


@pytest.mark.parametrize(("position", "layout"), [(5_000_000 - 3, ">b"), (5_000_000 - 2, ">h")])
def test_a_negative_length_far_behind_the_window_is_bad_length(position: int, layout: str) -> None:
    data = bytearray(with_total_size(5_000_000, 5_000_000 - 91, 6_000_000))
    struct.pack_into(layout, data, position, -1)
    assert code_at(reading(bytes(data))[0], 0) == "bad-length"


def test_a_lying_total_size_beyond_the_window_whose_lengths_add_up_is_told_by_its_body() -> None:
    reader, storage = reading(with_total_size(5_000_000, 5_000_000 - 91, 6_000_000))
    found = reader.at(0)
    assert isinstance(found, Damage)
    assert (found.code, found.size) == ("bad-body-crc", 5_000_000)
    assert storage.largest_read <= WINDOW_SIZE


def test_a_record_larger_than_the_window_in_another_place_is_bad_physical_offset() -> None:
    data = encode(Record(body=bytes(WINDOW_SIZE)), 1234)
    found = reading(data)[0].at(0)
    assert isinstance(found, Damage)
    assert (found.code, found.size) == ("bad-physical-offset", len(data))


def test_the_largest_total_size_is_not_read_from_a_huge_sparse_file(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with path.open("wb") as file:
        file.write(with_total_size(2**31 - 1, 1000, 5000))
        file.truncate(2**32)
    storage = CountingStorage(tmp_path)
    with MappedFile(storage, path, 0, 2**32) as mapped:
        assert code_at(RecordReader(mapped), 0) == "bad-length"
    assert storage.largest_read <= WINDOW_SIZE


def test_a_file_that_shrank_cannot_be_read() -> None:
    data = encode(Record(), 0)
    with pytest.raises(OSError, match="became shorter"):
        reading(data[:50], len(data) + 100)[0].at(0)


def test_a_file_that_shrank_inside_a_record_larger_than_the_window_cannot_be_read() -> None:
    data = encode(Record(body=bytes(WINDOW_SIZE + 1000)), 0)
    with pytest.raises(OSError, match="became shorter"):
        reading(data[: WINDOW_SIZE + 500], len(data))[0].at(0)


def test_no_record_is_looked_for_in_a_file_that_shrank() -> None:
    with pytest.raises(OSError, match="became shorter"):
        reading(b"", 1000)[0].next_record(0)


@pytest.mark.parametrize("room", range(8))
def test_the_last_bytes_of_a_file_are_no_blank(room: int) -> None:
    data = encode(Record(), 0) + b"\xff" * room
    reader, _ = reading(data)
    assert code_at(reader, len(data) - room) == "no-blank"


def test_the_next_record_may_be_right_here() -> None:
    records = sample_records(3)
    reader, _ = reading(log_bytes(records))
    assert [reader.next_record(position) for position in starts(records)] == starts(records)


def test_the_next_record_is_the_first_one_behind_a_position() -> None:
    records = sample_records(5)
    reader, _ = reading(log_bytes(records))
    positions = starts(records)
    for before, after in pairwise(positions):
        assert {reader.next_record(position) for position in range(before + 1, after + 1)} == {after}


def test_a_stale_record_is_not_the_next_one() -> None:
    stale, garbage = encode(Record(body=b"stale"), 777), bytes(30)
    at = len(garbage) + len(stale)
    reader, _ = reading(garbage + stale + encode(Record(), at))
    assert reader.next_record(0) == at


def test_a_magic_code_in_a_body_is_not_the_next_record() -> None:
    first = encode(Record(body=struct.pack(">iI", 91, V1) * 40), 0)
    reader, _ = reading(first + encode(Record(), len(first)))
    assert reader.next_record(1) == len(first)


def test_a_record_with_a_broken_body_is_the_next_one() -> None:
    data = bytearray(bytes(10) + encode(Record(), 10))
    data[10 + 88] ^= 1
    reader, _ = reading(bytes(data))
    assert reader.next_record(0) == 10


def test_a_blank_that_fills_the_file_is_the_next_record() -> None:
    reader, _ = reading(b"\xff" * 10 + struct.pack(">iI", 50, BLANK) + bytes(42))
    assert reader.next_record(0) == 10
    assert reader.at(10) == Blank(10, 50)


def test_a_blank_of_another_size_is_not_the_next_record() -> None:
    reader, _ = reading(b"\xff" * 10 + struct.pack(">iI", 51, BLANK) + bytes(42))
    assert reader.next_record(0) is None


def test_the_claimed_size_is_believed_only_where_it_is_possible() -> None:
    data = encode(Record(), 0)
    assert reading(data)[0].claimed_size(0) == len(data)
    assert reading(data[:-1])[0].claimed_size(0) == 0
    assert reading(b"\0" + data)[0].claimed_size(0) == 0
    assert reading(data)[0].claimed_size(len(data) - 3) == 0


FRAGMENTS = st.lists(
    st.binary(max_size=30)
    | st.sampled_from([struct.pack(">I", magic) for magic in (V1, V2, BLANK)])
    | st.integers(0, 400).map(lambda at: encode(Record(body=b""), at))
    | st.integers(-1, 200).map(lambda size: struct.pack(">iI", size, BLANK)),
    max_size=8,
).map(b"".join)


@PROPERTY
@given(FRAGMENTS)
def test_random_bytes_never_raise_and_the_next_record_always_advances(data: bytes) -> None:
    reader, _ = reading(data)
    position: int | None = 0
    for _ in range(len(data) + 1):
        assert position is not None
        found = reader.next_record(position)
        if found is None:
            break
        assert position <= found < len(data)
        item = reader.at(found)
        assert item is not None
        assert item.physical_offset == found
        position = found + 1
    else:
        pytest.fail("the search for records does not end")


@PROPERTY
@given(FRAGMENTS, st.data())
def test_any_position_can_be_asked_for(data: bytes, choice: st.DataObject) -> None:
    position = choice.draw(st.integers(0, len(data)))
    found = reading(data)[0].at(position)
    assert found is None or (found.physical_offset == position and 0 <= found.size <= len(data) - position)


@PROPERTY
@given(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.binary(max_size=20))
def test_records_behind_garbage_are_found(sizes: list[int], garbage: bytes) -> None:
    records = [Record(body=bytes([size] * size)) for size in sizes]
    data = garbage + log_bytes(records, len(garbage))
    reader, _ = reading(data)
    found = reader.next_record(0)
    assert found == len(garbage)


def test_a_shifted_record_behind_a_false_head_that_claims_its_bytes_is_found() -> None:
    true = encode(Record(body=b"true"), 9000)
    lying = with_total_size(len(true) + 100, 5, 92) + true + bytes(100)  # its lengths do not add up
    framed = encode(Record(body=b"\1" * 50 + true), 5000)  # whole by its lengths; its checksum is wrong
    data = bytearray(lying + framed + true)
    data[len(lying) + 95] ^= 1
    reader, _ = reading(bytes(data))
    assert code_at(reader, 0) == "bad-length"
    assert code_at(reader, len(lying)) == "bad-body-crc"
    found, position = [], 0
    while (damage := reader.next_shifted(position, len(data))) is not None:
        found.append(damage.physical_offset)
        position = damage.end
    # a copy in the body of a record that is whole by its lengths belongs to that record
    assert found == [92, len(lying) + len(framed)]
