"""The broker's own look at a record: what it overlooks, and what it stops at, by versions."""

from __future__ import annotations

import struct

import pytest

from rmqctl.format.broker_check import Checked, check_message_and_return_size
from rmqctl.format.message import Message, decode
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from tests.support.log_maker import BLANK, BORN_V6, STORE_V6, V1, V2, Record, encode, sample_records

ALL = tuple(PROFILES.values())
OLD = (PROFILE_4_7, PROFILE_4_9)
BODY_LENGTH_AT = 84


def check(data: bytes, profile: Profile, *, room: int | None = None, crc: bool = True) -> Checked:
    return check_message_and_return_size(
        lambda at, size: data[at : at + size], len(data) if room is None else room, profile, check_crc=crc
    )


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("sys_flag", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
def test_a_good_record_is_read_as_ours_is(profile: Profile, sys_flag: int) -> None:
    for record in sample_records(20, sys_flag=sys_flag, property_crc=True):
        data = encode(record, 0)
        ours = decode(data, 0, 0, len(data))
        assert isinstance(ours, Message)
        assert check(data + b"rest", profile) == Checked(len(data), ours._replace(body=memoryview(b"")))


@pytest.mark.parametrize(("profile", "known"), [(PROFILE_4_7, False), (PROFILE_4_9, False), (PROFILE_5_3, True)])
def test_v2_is_known_to_5_alone(profile: Profile, known: bool) -> None:
    checked = check(encode(Record(topic="T" * 200, magic=V2), 0), profile)
    assert (checked.message is not None) == known
    assert checked.size == (-1 if not known else checked.size)


@pytest.mark.parametrize("profile", ALL)
def test_what_no_broker_looks_at(profile: Profile) -> None:
    data = encode(Record(property_crc=True), 0)
    elsewhere = check(patched(data, 28, struct.pack(">q", 4711)), profile)
    assert elsewhere.message is not None
    assert elsewhere.message.physical_offset == elsewhere.message.stored_physical_offset == 4711
    assert check(patched(data, len(data) - 5, b"x"), profile).message is not None
    empty = encode(Record(body=b""), 0)
    assert check(patched(empty, 8, b"\1\2\3\4"), profile).message is not None
    assert check(patched(empty, BODY_LENGTH_AT, struct.pack(">i", -5)), profile).message is not None


@pytest.mark.parametrize("profile", ALL)
def test_a_flipped_bit_of_the_body_ends_recovery_and_not_dispatch(profile: Profile) -> None:
    data = encode(Record(body=b"x" * 50), 0)
    broken = patched(data, 100, b"y")
    assert check(broken, profile).size == -1
    assert "BODYCRC" in check(broken, profile).problem
    assert check(broken, profile, crc=False).message is not None


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("difference", [-7, 5])
def test_lengths_that_do_not_add_up(profile: Profile, difference: int) -> None:
    data = encode(Record(), 0)
    checked = check(patched(data, 0, struct.pack(">i", len(data) + difference)) + bytes(100), profile)
    assert checked.message is None
    assert not checked.is_blank
    assert (checked.size, checked.consumed) == (len(data) + difference, len(data))


@pytest.mark.parametrize("profile", ALL)
def test_what_is_no_record(profile: Profile) -> None:
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
        checked = check(record, profile)
        assert checked.message is None
        assert not checked.is_blank
        assert checked.problem


@pytest.mark.parametrize("profile", ALL)
def test_only_5_looks_at_a_blanks_size(profile: Profile) -> None:
    for size, is_blank in ((100, True), (40, True), (-3, True), (101, profile in OLD)):
        assert check(struct.pack(">iI", size, BLANK) + bytes(92), profile).is_blank == is_blank


@pytest.mark.parametrize("profile", ALL)
def test_numbers_that_are_none(profile: Profile) -> None:
    scheduled = encode(Record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01three\x02"), 0)
    assert check(scheduled, profile).size == -1
    assert check(encode(Record(properties=b"DELAY\x01three\x02"), 0), profile).message is not None
    assert (
        check(encode(Record(topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01-3\x02"), 0), profile).message
        is not None
    )
    batch = encode(Record(properties=b"INNER_BASE\x015\x02INNER_NUM\x0140000\x02"), 0)
    assert (check(batch, profile).message is None) == (profile not in OLD)
    assert (
        check(encode(Record(magic=V1, properties=b"INNER_BASE\x015\x02INNER_NUM\x014\x02"), 0), profile).message
        is not None
    )


def test_every_cut_of_a_record_is_none() -> None:
    data = encode(Record(body=b"some body"), 0)
    for profile in ALL:
        assert all(check(data[:length], profile).message is None for length in range(len(data)))
