"""The broker's own look at a record: what it overlooks, and what it stops at, by versions."""

from __future__ import annotations

import struct

import pytest

from rmqctl.format.broker_check import Checked, check_message_and_return_size
from rmqctl.format.message import Message, decode
from rmqctl.format.profile import StartRules, StartSettings, number_of, start_rules
from tests.support.log_maker import BLANK, BORN_V6, STORE_V6, V1, V2, Record, encode, sample_records

ALL = tuple(map(start_rules, ("4.7.1", "4.9.7", "5.0.0", "5.3.1", "5.3.3", "5.5.1")))
NO_V2, NO_ROOM, NO_BATCH = ALL[:3], ALL[:4], ALL[:2]
BODY_LENGTH_AT = 84


def check(data: bytes, rules: StartRules, *, room: int | None = None, crc: bool = True) -> Checked:
    return check_message_and_return_size(
        lambda at, size: data[at : at + size], len(data) if room is None else room, rules, check_crc=crc
    )


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
@pytest.mark.parametrize("sys_flag", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
def test_a_good_record_is_read_as_ours_is(rules: StartRules, sys_flag: int) -> None:
    for record in sample_records(20, sys_flag=sys_flag, property_crc=True):
        data = encode(record, 0)
        ours = decode(data, 0, 0, len(data))
        assert isinstance(ours, Message)
        assert check(data + b"rest", rules) == Checked(len(data), ours._replace(body=memoryview(b"")))


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
def test_v2_is_known_since_5_1(rules: StartRules) -> None:
    known = rules not in NO_V2
    checked = check(encode(Record(topic="T" * 200, magic=V2), 0), rules)
    assert (checked.message is not None) == known
    assert checked.size == (-1 if not known else checked.size)


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
def test_what_no_broker_looks_at(rules: StartRules) -> None:
    data = encode(Record(property_crc=True), 0)
    elsewhere = check(patched(data, 28, struct.pack(">q", 4711)), rules)
    assert elsewhere.message is not None
    assert elsewhere.message.physical_offset == elsewhere.message.stored_physical_offset == 4711
    assert check(patched(data, len(data) - 5, b"x"), rules).message is not None
    empty = encode(Record(body=b""), 0)
    assert check(patched(empty, 8, b"\1\2\3\4"), rules).message is not None
    assert check(patched(empty, BODY_LENGTH_AT, struct.pack(">i", -5)), rules).message is not None


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
def test_a_flipped_bit_of_the_body_ends_recovery_and_not_dispatch(rules: StartRules) -> None:
    data = encode(Record(body=b"x" * 50), 0)
    broken = patched(data, 100, b"y")
    assert check(broken, rules).size == -1
    assert "BODYCRC" in check(broken, rules).problem
    assert check(broken, rules, crc=False).message is not None


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
@pytest.mark.parametrize("difference", [-7, 5])
def test_lengths_that_do_not_add_up(rules: StartRules, difference: int) -> None:
    data = encode(Record(), 0)
    checked = check(patched(data, 0, struct.pack(">i", len(data) + difference)) + bytes(100), rules)
    assert checked.message is None
    assert not checked.is_blank
    assert (checked.size, checked.consumed) == (len(data) + difference, len(data))


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
def test_what_is_no_record(rules: StartRules) -> None:
    data = encode(Record(), 0)
    sizes = (-1, 0, 1 << 30)
    broken = [patched(data, 0, struct.pack(">i", size)) for size in sizes] + [
        data[:length] for length in (0, 7, 50, len(data) - 1)
    ]
    broken += [
        bytes(100),
        patched(data, 4, b"\xde\xad\xbe\xef"),
        patched(data, BODY_LENGTH_AT, struct.pack(">i", 1 << 20)),
    ]
    for record in broken:
        checked = check(record, rules)
        assert checked.message is None
        assert not checked.is_blank
        assert checked.problem


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
def test_only_5_3_2_and_later_look_at_a_blanks_size(rules: StartRules) -> None:
    for size, is_blank in ((100, True), (40, True), (-3, True), (101, rules in NO_ROOM)):
        assert check(struct.pack(">iI", size, BLANK) + bytes(92), rules).is_blank == is_blank


@pytest.mark.parametrize("rules", ALL, ids=lambda rules: rules.version)
def test_numbers_that_are_none(rules: StartRules) -> None:
    scheduled = encode(Record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01three\x02"), 0)
    assert check(scheduled, rules).size == -1
    assert check(encode(Record(properties=b"DELAY\x01three\x02"), 0), rules).message is not None
    assert (
        check(encode(Record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01-3\x02"), 0), rules).message is not None
    )
    divided = encode(Record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013fTAGS\x01TagA\x02"), 0)
    ends_divided = encode(Record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x01\x02"), 0)
    reads_values = number_of(rules.version) >= (4, 9, 1)
    assert [check(record, rules).message is None for record in (divided, ends_divided)] == [reads_values] * 2
    batch = encode(Record(properties=b"INNER_BASE\x015\x02INNER_NUM\x0140000\x02"), 0)
    assert (check(batch, rules).message is None) == (rules not in NO_BATCH)
    assert (
        check(encode(Record(magic=V1, properties=b"INNER_BASE\x015\x02INNER_NUM\x014\x02"), 0), rules).message
        is not None
    )


def test_every_cut_of_a_record_is_none() -> None:
    data = encode(Record(body=b"some body"), 0)
    for rules in ALL:
        assert all(check(data[:length], rules).message is None for length in range(len(data)))


def test_force_verify_prop_crc_requires_the_property_and_nothing_else() -> None:
    """As 5.3.3 does: `not found CRC in properties` ends the log."""
    forced = start_rules("5.3.3", StartSettings(force_verify_prop_crc=True))
    plain, summed = (encode(Record(body=b"body", property_crc=has), 0) for has in (False, True))
    assert "forceVerifyPropCRC" in check(plain, forced).problem
    assert check(plain, forced, crc=False).message is not None
    assert check(summed, forced).message is not None
    assert check(patched(summed, 8, b"\1\2\3\4"), forced).size == -1  # the property covers BODYCRC as well
    assert check(plain, start_rules("5.1.4", StartSettings(force_verify_prop_crc=True))).message is not None


def test_duplication_requires_dup_info_in_5() -> None:
    said = StartSettings(duplication=True)
    plain, named = (encode(Record(properties=text), 0) for text in (b"a\x01b\x02", b"DUP_INFO\x01x_1\x02"))
    assert "duplicationEnable" in check(plain, start_rules("5.3.3", said)).problem
    assert check(named, start_rules("5.3.3", said)).message is not None
    assert check(plain, start_rules("4.9.7", said)).message is not None
