from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqctl.format import message
from rmqctl.format.message import Blank, Damage, Message
from tests.support.log_maker import BLANK, BORN_V6, STORE_V6, V1, V2, Record, encode
from tests.support.property_settings import PROPERTY

BODY_AT, TOPIC_LENGTH_AT = 88, 93  # of a record with IPv4 hosts and the body `hello`

BODIES = st.binary(max_size=60)
PROPERTIES = st.binary(max_size=60)
TOPICS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
RECORDS = st.builds(
    Record,
    topic=TOPICS,
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    body=BODIES,
    properties=PROPERTIES.filter(lambda raw: not raw.endswith(b"\0")),  # that would be a torn write
    sys_flag=st.sampled_from([0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6, 1, 4, 8, 12]),
    magic=st.sampled_from([V1, V2]),
    store_timestamp=st.integers(0, 2**63 - 1),
    property_crc=st.booleans(),
)


def decode_whole(raw: bytes, physical_offset: int = 0) -> Message | Blank | Damage | None:
    return message.decode(raw, 0, physical_offset, len(raw))


def code_of(found: Message | Blank | Damage | None) -> str:
    assert isinstance(found, Damage)
    return found.code


def patched(raw: bytes, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(raw)
    struct.pack_into(">" + layout, changed, position, value)
    return bytes(changed)


@PROPERTY
@given(RECORDS, st.integers(0, 2**40))
def test_what_is_written_is_read_back(record: Record, physical_offset: int) -> None:
    raw = encode(record, physical_offset)
    found = decode_whole(raw, physical_offset)
    assert isinstance(found, Message)
    assert (found.physical_offset, found.stored_physical_offset, found.size) == (
        physical_offset,
        physical_offset,
        len(raw),
    )
    assert (found.magic_code, found.sys_flag, found.flag) == (record.magic, record.sys_flag, 3)
    assert (found.queue_id, found.queue_offset, found.topic) == (record.queue_id, record.queue_offset, record.topic)
    assert (bytes(found.body), found.body_crc) == (record.body, zlib.crc32(record.body) & 0x7FFFFFFF)
    assert found.properties_bytes.startswith(record.properties)
    assert (found.born_timestamp, found.store_timestamp) == (1_795_252_516_000, record.store_timestamp)
    assert (found.born_host.port, found.store_host.port) == (30001, 10911)
    assert len(found.born_host.address) == (16 if record.sys_flag & BORN_V6 else 4)
    assert len(found.store_host.address) == (16 if record.sys_flag & STORE_V6 else 4)
    assert (found.reconsume_times, found.prepared_transaction_offset) == (0, 0)


@PROPERTY
@given(RECORDS, st.binary(max_size=20), st.binary(max_size=20))
def test_what_stands_around_a_record_does_not_matter(record: Record, before: bytes, behind: bytes) -> None:
    buffer = before + encode(record, 7) + behind
    assert message.decode(buffer, len(before), 7, len(buffer) - len(before)) == decode_whole(encode(record, 7), 7)


def test_a_memoryview_is_read_like_bytes() -> None:
    raw = encode(Record(), 0)
    assert message.decode(memoryview(raw), 0, 0, len(raw)) == decode_whole(raw)


def test_the_msg_id_is_made_of_store_host_and_offset() -> None:
    found = decode_whole(encode(Record(), 38209), 38209)
    assert isinstance(found, Message)
    assert (found.msg_id, found.end) == ("C0A8070900002A9F0000000000009541", 38209 + found.size)


def test_ipv6_hosts_are_shown_in_brackets() -> None:
    found = decode_whole(encode(Record(sys_flag=BORN_V6 | STORE_V6), 0))
    assert isinstance(found, Message)
    assert str(found.born_host) == "[1:203:405:607:809:a0b:c0d:e0f]:30001"
    assert len(found.msg_id) == 56


def test_a_v2_record_may_have_a_topic_of_more_than_127_bytes() -> None:
    found = decode_whole(encode(Record(topic="T" * 300, magic=V2), 0))
    assert isinstance(found, Message)
    assert found.topic == "T" * 300


def test_a_topic_that_is_no_utf8_has_replacement_characters() -> None:
    raw = encode(Record(topic="OrderPaid"), 0).replace(b"OrderPaid", b"Order\xff\xfe\xfd\xfc")
    found = decode_whole(raw)
    assert isinstance(found, Message)
    assert found.topic == "Order" + "\ufffd" * 4


def test_the_smallest_record_has_91_bytes() -> None:
    raw = encode(Record(topic="", body=b"", properties=b""), 0)
    assert len(raw) == message.MIN_SIZE == 91
    assert isinstance(decode_whole(raw), Message)


def test_eight_zero_bytes_are_nothing_written() -> None:
    assert message.decode(bytes(8), 0, 0, 8) is None


def test_a_blank_takes_the_rest_of_the_file() -> None:
    assert message.decode(struct.pack(">iI", 100, BLANK), 0, 4000, 100) == Blank(4000, 100)
    assert Blank(4000, 100).end == 4100


@pytest.mark.parametrize("size", [99, 101, 0, -1, 8, 2**31 - 1, -(2**31)])
def test_a_blank_of_another_size_is_damage_without_an_extent(size: int) -> None:
    found = message.decode(struct.pack(">iI", size, BLANK), 0, 4000, 100)
    assert isinstance(found, Damage)
    assert (found.code, found.physical_offset, found.size) == ("bad-blank-size", 4000, 0)


@pytest.mark.parametrize("room", range(8))
def test_a_file_without_room_for_a_blank_has_none(room: int) -> None:
    found = message.decode(bytes(room), 0, 4000, room)
    assert isinstance(found, Damage)
    assert (found.code, found.size) == ("no-blank", room)


@pytest.mark.parametrize("magic", [0, 1, V1 + 1, V2 + 1, V1 ^ 0x80000000, 0xFFFFFFFF])
def test_another_magic_code_is_bad_magic(magic: int) -> None:
    assert code_of(decode_whole(patched(encode(Record(), 0), 4, "I", magic))) == "bad-magic"


def test_a_size_with_the_magic_code_zero_is_bad_magic() -> None:
    assert code_of(message.decode(struct.pack(">iI", 100, 0), 0, 0, 100)) == "bad-magic"


def test_a_record_that_runs_beyond_the_file_is_bad_size() -> None:
    raw = encode(Record(), 0)
    assert code_of(message.decode(raw[:-1], 0, 0, len(raw) - 1)) == "bad-size"


@pytest.mark.parametrize("size", [0, 1, 90, -1, -(2**31), 2**31 - 1])
def test_a_size_that_no_record_has_is_bad_size(size: int) -> None:
    assert code_of(decode_whole(patched(encode(Record(), 0), 0, "i", size))) == "bad-size"


@pytest.mark.parametrize("sys_flag", [BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
def test_a_record_too_small_for_its_ipv6_hosts_is_bad_length(sys_flag: int) -> None:
    raw = encode(Record(topic="", body=b"", properties=b""), 0)
    assert code_of(decode_whole(patched(raw, message.HEADS[0].offset("SYSFLAG"), "i", sys_flag))) == "bad-length"


@pytest.mark.parametrize("length", [-1, -(2**31), 4, 6, 34, 10_000, 2**31 - 1])
def test_a_wrong_body_length_is_bad_length(length: int) -> None:
    assert code_of(decode_whole(patched(encode(Record(), 0), BODY_AT - 4, "i", length))) == "bad-length"


@pytest.mark.parametrize("length", [-1, -128, 8, 10, 127])
def test_a_wrong_topic_length_is_bad_length(length: int) -> None:
    assert code_of(decode_whole(patched(encode(Record(), 0), TOPIC_LENGTH_AT, "b", length))) == "bad-length"


@pytest.mark.parametrize("length", [-1, -(2**15), 8, 10, 2**15 - 1])
def test_a_wrong_topic_length_of_v2_is_bad_length(length: int) -> None:
    assert code_of(decode_whole(patched(encode(Record(magic=V2), 0), TOPIC_LENGTH_AT, "h", length))) == "bad-length"


@pytest.mark.parametrize("length", [-1, -(2**15), 0, 20, 22, 2**15 - 1])
def test_a_wrong_properties_length_is_bad_length(length: int) -> None:
    raw = encode(Record(), 0)
    length_at = len(raw) - len(Record().properties) - 2
    assert code_of(decode_whole(patched(raw, length_at, "h", length))) == "bad-length"


def test_v1_and_v2_frames_are_not_taken_for_each_other() -> None:
    assert code_of(decode_whole(patched(encode(Record(), 0), 4, "I", V2))) == "bad-length"
    assert code_of(decode_whole(patched(encode(Record(magic=V2), 0), 4, "I", V1))) == "bad-length"


def test_a_record_in_another_place_is_bad_physical_offset_and_still_told() -> None:
    found = decode_whole(encode(Record(body=b"stale"), 500), 900)
    assert isinstance(found, Damage)
    assert (found.code, found.physical_offset) == ("bad-physical-offset", 900)
    assert found.message is not None
    assert (bytes(found.message.body), found.message.stored_physical_offset, found.message.physical_offset) == (
        b"stale",
        500,
        900,
    )
    assert found.end == found.message.end


@pytest.mark.parametrize(("body", "code"), [(b"stale", "bad-body-crc"), (b"", "bad-physical-offset")])
def test_of_two_faults_the_one_that_ends_the_log_is_told(body: bytes, code: str) -> None:
    """Brokers look at no PHYSICALOFFSET, and not at the CRC of an empty body."""
    found = decode_whole(patched(encode(Record(body=body), 500), 8, "I", 1), 900)
    assert isinstance(found, Damage)
    assert (found.code, "PHYSICALOFFSET is 500, the record is at 900" in found.detail) == (code, True)


def test_a_flipped_bit_in_the_body_is_bad_body_crc_and_the_message_still_told() -> None:
    raw = encode(Record(), 0)
    found = decode_whole(patched(raw, BODY_AT, "B", raw[BODY_AT] ^ 1))
    assert isinstance(found, Damage)
    assert (found.code, found.size) == ("bad-body-crc", len(raw))
    assert found.message is not None
    assert bytes(found.message.body) == b"iello"


def test_a_flipped_bit_in_body_crc_is_bad_body_crc() -> None:
    assert code_of(decode_whole(patched(encode(Record(), 0), 8, "I", 0xB610A686))) == "bad-body-crc"


def test_an_empty_body_has_the_crc_zero() -> None:
    raw = encode(Record(body=b""), 0)
    assert isinstance(decode_whole(raw), Message)
    assert code_of(decode_whole(patched(raw, 8, "I", 1))) == "bad-body-crc"


def test_a_flipped_bit_outside_the_body_is_found_by_the_property_crc() -> None:
    raw = encode(Record(property_crc=True), 0)
    found = decode_whole(patched(raw, message.HEADS[0].offset("QUEUEID"), "i", 99))
    assert isinstance(found, Damage)
    assert found.code == "bad-property-crc"
    assert found.message is not None
    assert found.message.queue_id == 99


@pytest.mark.parametrize(
    "record", [Record(), Record(magic=V2), Record(sys_flag=BORN_V6 | STORE_V6), Record(property_crc=True)]
)
def test_a_record_cut_at_any_byte_is_never_a_message(record: Record) -> None:
    raw = encode(record, 0)
    assert not any(isinstance(decode_whole(raw[:size]), Message) for size in range(len(raw)))


def test_with_the_property_crc_no_bit_flips_unseen() -> None:
    raw = encode(Record(property_crc=True), 0)
    for position in range(len(raw)):
        for bit in range(8):
            assert isinstance(decode_whole(patched(raw, position, "B", raw[position] ^ 1 << bit)), Damage)


HEAD = struct.Struct(">iI12sqqi")


@PROPERTY
@given(
    st.sampled_from([V1, V2, BLANK, 0]),
    st.integers(-8, 300),
    st.sampled_from([0, BORN_V6, STORE_V6]),
    st.binary(max_size=256),
)
@example(V1, 91, 0, bytes(91))
def test_bytes_that_look_like_a_record_never_raise(magic: int, size: int, sys_flag: int, rest: bytes) -> None:
    raw = HEAD.pack(size, magic, bytes(12), 0, 0, sys_flag) + rest
    found = decode_whole(raw)
    assert found is None or 0 <= found.size <= len(raw)


@PROPERTY
@given(st.binary(max_size=200))
def test_random_bytes_never_raise(raw: bytes) -> None:
    found = decode_whole(raw)
    assert found is None or found.physical_offset == 0


@PROPERTY
@given(RECORDS, st.data())
def test_a_record_with_a_random_byte_never_raises(record: Record, data: st.DataObject) -> None:
    raw = encode(record, 0)
    position = data.draw(st.integers(0, len(raw) - 1))
    found = decode_whole(patched(raw, position, "B", data.draw(st.integers(0, 255))))
    assert found is None or 0 <= found.size <= len(raw)


def test_a_buffer_that_ends_before_the_record_is_a_mistake_of_the_caller() -> None:
    raw = encode(Record(), 0)
    with pytest.raises(ValueError, match="before the record does"):
        message.decode(raw[:-1], 0, 0, len(raw))


@pytest.mark.parametrize(
    ("found", "code"), [({"TAGS": "TagA"}, 2598919), ({}, 0), ({"KEYS": "k"}, 0), ({"TAGS": ""}, 0)]
)
def test_the_tags_code_is_the_hash_of_the_tags(found: dict[str, str], code: int) -> None:
    assert message.tags_code(found) == code


def test_the_head_is_12_bytes_longer_for_each_ipv6_host() -> None:
    sizes = [
        message.head_of(encode(Record(sys_flag=flag), 0)).size for flag in (0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6)
    ]
    assert sizes == [88, 100, 100, 112]


@pytest.mark.parametrize(("sys_flag", "offset"), [(0, 56), (BORN_V6, 68), (STORE_V6, 56)])
def test_the_store_timestamp_moves_with_the_born_host_only(sys_flag: int, offset: int) -> None:
    assert message.HEADS[sys_flag].offset("STORETIMESTAMP") == offset
