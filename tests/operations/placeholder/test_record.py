"""Placeholders are valid records of the size that was asked for, and a range is filled wholly, whatever the units
claim.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format import properties
from rmqctl.format.message import PLACEHOLDER_SIGN, Blank, Damage, Message, decode, tags_code
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.operations.placeholder.pieces import FILLER_SIZE_MAX, PlaceholderRecord, Span, placeholder_records
from rmqctl.operations.placeholder.record import (
    NAME,
    Claim,
    Surroundings,
    filler_size_min,
    placeholder_message,
    surroundings,
)
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rmqctl.store.dispatch.dispatch_rules import batch_of, queue_destinations
from tests.support.log_maker import BORN_V6, STORE_V6, V1, V2, Record, encode
from tests.support.placeholder_file import AROUND, AT, FILE_END, NOW

BODY_START = 88
AROUND_V6 = AROUND._replace(store_host_bytes=bytes(range(20)))
AROUND_CRC = AROUND._replace(property_crc=True)


def span(size: int, *, begin: int = AT + 1000) -> Span:
    return Span(begin, begin + size, AT, FILE_END)


def decoded(data: bytes, at: int) -> Message | Blank:
    found = decode(data, 0, at, FILE_END - at)
    assert isinstance(found, Message | Blank), found
    return found


def damaged(record: Record, position: int, value: int) -> Damage:
    """What is found where one byte of a record differs."""
    raw = bytearray(encode(record, AT))
    assert raw[position] != value
    raw[position] = value
    found = decode(bytes(raw), 0, AT, FILE_END - AT)
    assert isinstance(found, Damage)
    return found


def replaced(damage: Damage) -> Message:
    """The placeholder for a damage whose frame is whole."""
    assert damage.message is not None
    found = decoded(placeholder_message(damage.message, damage.code), AT)
    assert isinstance(found, Message)
    assert found.size == damage.message.size
    assert found.prepared_transaction_offset == PLACEHOLDER_SIGN
    return found


def test_a_mark_has_nothing_that_clients_reject() -> None:
    raw = bytearray(encode(Record(body=b"hello", sys_flag=1, properties=b"K\x01v\0"), AT))
    raw[52:56] = (70000).to_bytes(4)
    found = decode(bytes(raw), 0, AT, FILE_END - AT)
    assert isinstance(found, Damage)
    placeholder = replaced(found)
    assert (str(placeholder.born_host), str(placeholder.store_host), placeholder.sys_flag) == (
        "10.1.2.3:0",
        "192.168.7.9:10911",
        0,
    )


def filled(records: Iterable[PlaceholderRecord], of: Span) -> list[tuple[PlaceholderRecord, Message | Blank]]:
    """The records decoded; they fill the span one after the other."""
    at = of.begin
    found = []
    for record in records:
        assert record.physical_offset == at
        item = decoded(record.data, at)
        assert item.size == record.size
        found.append((record, item))
        at += record.size
    assert at == of.end
    return found


@pytest.mark.parametrize("sys_flag", [0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6])
@pytest.mark.parametrize("property_crc", [False, True])
@pytest.mark.parametrize("magic", [V1, V2])
def test_a_message_with_a_damaged_body_is_the_same_but_for_its_body(
    sys_flag: int, property_crc: bool, magic: int
) -> None:
    record = Record(body=bytes(100), sys_flag=sys_flag, magic=magic, property_crc=property_crc, queue_offset=7)
    damage = damaged(record, BODY_START + 30, 1)
    placeholder = replaced(damage)
    assert damage.message is not None
    assert placeholder.properties == damage.message.properties | {NAME: "bad-body-crc"} | (
        {"__CRC32#": placeholder.properties["__CRC32#"]} if property_crc else {}
    )
    new = ("body", "body_crc", "properties_bytes", "prepared_transaction_offset")
    assert [getattr(placeholder, name) for name in Message._fields if name not in new] == [
        getattr(damage.message, name) for name in Message._fields if name not in new
    ]
    assert queue_destinations(placeholder) == queue_destinations(damage.message)
    assert bytes(placeholder.body).rstrip() == b'{"RMQCTL_DAMAGED":"bad-body-crc"}'


@pytest.mark.parametrize(
    ("size", "value", "body"),
    [
        (1, None, b" "),
        (2, None, b"{}"),
        (17, None, b"{}".ljust(17)),
        (18, "1", b" "),
        (28, "1", b"{}".ljust(11)),
        (29, "bad-body-crc", b" "),
        (62, "bad-body-crc", b'{"RMQCTL_DAMAGED":"bad-body-crc"}'.ljust(34)),
    ],
)
def test_a_small_body_has_what_there_is_room_for(size: int, value: str | None, body: bytes) -> None:
    placeholder = replaced(damaged(Record(body=bytes(size)), BODY_START, 1))
    assert (placeholder.properties.get(NAME), bytes(placeholder.body)) == (value, body)


@pytest.mark.parametrize("end", [b"", b"\x02"])
def test_the_mark_takes_the_place_of_what_clients_and_brokers_add(end: bytes) -> None:
    raw = b"TAGS\x01TagA\x02WAIT\x01true\x02KEYS\x01k1\x02MSG_REGION\x01DefaultRegion" + end
    placeholder = replaced(damaged(Record(body=bytes(2), properties=raw), BODY_START, 1))
    assert placeholder.properties == {"TAGS": "TagA", "KEYS": "k1", NAME: "bad-body-crc"}


def test_flags_that_speak_of_the_body_go() -> None:
    placeholder = replaced(
        damaged(Record(body=bytes(100), sys_flag=0x1 | 0x2 | 0x8 | 0x40 | 0x80 | 0x300), BODY_START, 1)
    )
    assert placeholder.sys_flag == 0x2 | 0x8


def test_no_property_where_properties_would_become_too_long() -> None:
    record = Record(body=bytes(100), properties=b"KEYS\x01" + b"k" * 32755 + b"\x02")
    placeholder = replaced(damaged(record, BODY_START, 1))
    assert NAME not in placeholder.properties
    assert len(placeholder.body) == 100


def test_a_body_that_its_crc_vouches_for_stays() -> None:
    record = Record(body=b"precious", property_crc=True)
    damage = damaged(record, 20, 1)  # FLAG or QUEUEOFFSET: only __CRC32# sees it
    assert damage.code == "bad-property-crc"
    placeholder = replaced(damage)
    assert bytes(placeholder.body) == b"precious"
    assert damage.message is not None
    assert {k: v for k, v in placeholder.properties.items() if k != "__CRC32#"} == {
        k: v for k, v in damage.message.properties.items() if k != "__CRC32#"
    }


def test_a_damaged_name_of_the_property_crc_is_mended() -> None:
    raw = encode(Record(property_crc=True), AT)
    damage = damaged(Record(property_crc=True), len(raw) - 20, ord("X"))
    assert damage.code == "bad-property-crc"
    assert replaced(damage).properties["__CRC32#"]


def test_a_wrong_physical_offset_is_mended() -> None:
    damage = damaged(Record(body=b"precious"), 28, 1)
    assert damage.code == "bad-physical-offset"
    placeholder = replaced(damage)
    assert (placeholder.stored_physical_offset, bytes(placeholder.body)) == (AT, b"precious")


def test_an_empty_body_stays_empty() -> None:
    damage = damaged(Record(body=b""), 8, 1)
    assert damage.code == "bad-body-crc"
    assert (replaced(damage).body_crc, len(replaced(damage).body)) == (0, 0)


@pytest.mark.parametrize("torn", [1, 5, 12, 40])
def test_torn_properties_keep_the_whole_pairs(torn: int) -> None:
    record = Record(
        body=b"precious", properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010123456789ABCDEF0123456789\x02"
    )
    raw = encode(record, AT)[:-torn] + bytes(torn)
    damage = decode(raw, 0, AT, FILE_END - AT)
    assert isinstance(damage, Damage)
    assert damage.code == "torn-properties"
    placeholder = replaced(damage)
    assert bytes(placeholder.body) == b"precious"
    kept = {"TAGS": "TagA"} if torn > 36 else {"TAGS": "TagA", "KEYS": "k1 k2"}
    assert placeholder.properties == kept | {NAME: "torn-properties"}


def test_torn_properties_behind_a_damaged_body() -> None:
    record = Record(body=bytes(50), properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02")
    raw = bytearray(encode(record, AT)[:-3] + bytes(3))
    raw[BODY_START] = 1
    damage = decode(bytes(raw), 0, AT, FILE_END - AT)
    assert isinstance(damage, Damage)
    assert replaced(damage).properties == {"TAGS": "TagA", NAME: "bad-body-crc"}


def test_a_body_that_was_too_large_to_read_is_replaced() -> None:
    damage = damaged(Record(body=bytes(100)), BODY_START, 1)
    assert damage.message is not None
    bodiless = damage._replace(message=damage.message._replace(body=memoryview(b"")))
    assert replaced(bodiless) == replaced(damage)


def test_each_claim_has_its_mark_and_the_rest_is_filled() -> None:
    of = span(1000)
    claims = [
        Claim("OrderPaid", 2, 5, of.begin + 600, 200, tags_code=2598919, tags="TagA"),
        Claim("OrderPaid", 1, 9, of.begin, 300),
    ]
    plan = placeholder_records(of, claims, "bad-magic", AROUND)
    found = filled(plan.records, of)
    assert [(record.size, record.claims) for record, _ in found] == [
        (300, (claims[1],)),
        (300, ()),
        (200, (claims[0],)),
        (200, ()),
    ]
    assert plan.dropped == []
    first, gap, second, _ = [item for _, item in found if isinstance(item, Message)]
    assert (first.topic, first.queue_id, first.queue_offset, first.store_timestamp) == ("OrderPaid", 1, 9, NOW)
    assert first.properties == {NAME: "bad-magic"}
    assert first.store_host_bytes == AROUND.store_host_bytes
    assert tags_code(second.properties) == claims[0].tags_code
    assert gap.topic == NAME
    assert queue_destinations(gap) == []
    assert transaction_type(gap.sys_flag) == TransactionType.ROLLBACK


@pytest.mark.parametrize("around", [AROUND, AROUND_V6, AROUND_CRC])
@pytest.mark.parametrize("more", [0, 1, 10, 14, 15, 16, 40, 41, 100])
def test_the_smallest_fillers(around: Surroundings, more: int) -> None:
    of = span(filler_size_min(around) + more)
    ((record, message),) = filled(placeholder_records(of, [], "hole", around).records, of)
    assert isinstance(message, Message)
    assert message.topic_bytes == NAME.encode()[:more]
    assert ("__CRC32#" in message.properties) == around.property_crc
    with pytest.raises(ValueError, match="too few for a record"):
        placeholder_records(of._replace(end=of.begin + filler_size_min(around) - 1), [], "hole", around)
    assert record.claims == ()


def test_large_ranges_are_filled_by_records_that_brokers_take() -> None:
    of = Span(0, 3 * FILLER_SIZE_MAX + 17, 0, 2**30)
    sizes = [record.size for record in placeholder_records(of, [], "hole", AROUND).records]
    assert sizes == [
        FILLER_SIZE_MAX,
        FILLER_SIZE_MAX,
        FILLER_SIZE_MAX - filler_size_min(AROUND),
        filler_size_min(AROUND) + 17,
    ]


@pytest.mark.parametrize("left", [8, 9, 91, 5000])
def test_the_rest_of_a_file_is_a_blank(left: int) -> None:
    of = Span(FILE_END - left, FILE_END, AT, FILE_END)
    (record,) = placeholder_records(of, [], "bad-blank-size", AROUND).records
    assert record.data == struct.pack(">iI", left, 0xCBD43194)
    with pytest.raises(ValueError, match="7 bytes"):
        placeholder_records(of._replace(begin=FILE_END - 7), [], "no-blank", AROUND)


def test_a_whole_file_begins_with_a_record() -> None:
    of = Span(AT, FILE_END, AT, FILE_END)
    (_, head), (_, blank) = filled(placeholder_records(of, [], "hole", AROUND).records, of)
    assert isinstance(head, Message)
    assert head.store_timestamp == NOW
    assert isinstance(blank, Blank)


def test_room_for_a_blank_is_left_behind_the_last_claim() -> None:
    of = Span(AT + 1000, FILE_END, AT, FILE_END)
    claim = Claim("T", 0, 3, FILE_END - 300, 300)
    plan = placeholder_records(of, [claim], "bad-size", AROUND)
    assert [record.size for record, _ in filled(plan.records, of)] == [FILE_END - 300 - of.begin, 292, 8]


def test_claims_that_contradict_each_other() -> None:
    of = span(1000)
    outside, overlapping, near, too_small = (
        Claim("T", 0, 1, of.end, 100),
        Claim("T", 0, 2, of.begin, 500),
        Claim("T", 0, 4, of.begin + 950, 200),
        Claim("T", 0, 5, of.begin + 990, 10),
    )
    second = Claim("T", 0, 3, of.begin + 400, 530)
    plan = placeholder_records(of, [outside, overlapping, second, near, too_small], "bad-size", AROUND)
    assert plan.dropped == [outside, near, too_small]
    found = filled(plan.records, of)
    assert [(record.size, record.claims) for record, _ in found] == [(400, (overlapping,)), (600, (second,))]


def test_a_claim_too_near_to_the_begin_is_dropped() -> None:
    of = span(1000)
    plan = placeholder_records(of, [Claim("T", 0, 1, of.begin + 50, 200)], "bad-size", AROUND)
    assert [record.claims for record, _ in filled(plan.records, of)] == [()]
    assert len(plan.dropped) == 1


def test_a_topic_that_no_record_can_have() -> None:
    of = span(1000)
    claim = Claim("T" * 200, 0, 1, of.begin, 500)
    ((_, message), _) = filled(placeholder_records(of, [claim], "bad-size", AROUND).records, of)
    assert isinstance(message, Message)
    assert (message.magic_code, message.topic) == (V2, "T" * 200)
    assert placeholder_records(of, [claim], "bad-size", AROUND._replace(long_topics=False)).dropped == [claim]


def one_placeholder(claims: list[Claim], of: Span, around: Surroundings = AROUND) -> Message:
    plan = placeholder_records(of, claims, "bad-magic", around)
    ((record, message),) = filled(plan.records, of)
    assert isinstance(message, Message)
    assert set(record.claims) == set(claims)
    return message


def test_lmq_queues_share_a_record() -> None:
    of = span(400)
    claims = [
        Claim("%LMQ%a", 0, 3, of.begin, 400),
        Claim("T", 2, 8, of.begin, 400),
        Claim("%LMQ%b", 0, 4, of.begin, 400),
    ]
    found = {
        (place.topic, place.queue_id, place.queue_offset) for place in queue_destinations(one_placeholder(claims, of))
    }
    assert found == {("T", 2, 8), ("%LMQ%a", 0, 3), ("%LMQ%b", 0, 4)}


def test_a_batch_takes_as_many_offsets_as_its_unit() -> None:
    of = span(400)
    assert batch_of(one_placeholder([Claim("T", 2, 80, of.begin, 400, inner_num=7)], of)) == (80, 7)


@pytest.mark.parametrize(("told", "time"), [(NOW + 2345 + 60_000, NOW + 2345 - 2000), (-(2**40), NOW), (0, NOW)])
def test_a_delayed_message_is_discarded_when_it_is_due(told: int, time: int) -> None:
    of = span(400)
    placeholder = one_placeholder([Claim(SCHEDULE_TOPIC, 4, 8, of.begin, 400, tags_code=told)], of)
    found = placeholder.properties
    assert (found[properties.DELAY], found[properties.REAL_TOPIC], found[properties.REAL_QUEUE_ID]) == (
        "5",
        TRANS_HALF_TOPIC,
        "0",
    )
    assert placeholder.store_timestamp == time
    assert told <= 0 or (told - placeholder.store_timestamp) % 1000 == 0


def test_a_time_that_a_unit_tells_is_between_those_around() -> None:
    of = span(400)
    claim = Claim(SCHEDULE_TOPIC, 4, 8, of.begin, 400, tags_code=NOW + 500)
    assert one_placeholder([claim], of, AROUND._replace(timestamp_max=NOW + 499)).store_timestamp == NOW
    assert one_placeholder([claim], of, AROUND._replace(timestamp_max=NOW + 500)).store_timestamp == NOW + 500


def test_a_message_of_the_timer_is_due_at_once() -> None:
    of = span(400)
    found = one_placeholder([Claim(TIMER_TOPIC, 0, 8, of.begin, 400)], of).properties
    assert (found[properties.TIMER_OUT_MS], found[properties.REAL_TOPIC], found[properties.REAL_QUEUE_ID]) == (
        str(NOW),
        NAME,
        "0",
    )


def test_what_is_taken_from_the_records_around() -> None:
    early = decoded(encode(Record(store_timestamp=NOW, property_crc=True), AT), AT)
    late = decoded(encode(Record(store_timestamp=NOW + 5), AT), AT)
    assert isinstance(early, Message)
    assert isinstance(late, Message)
    assert surroundings(early, late, long_topics=True) == Surroundings(
        early.store_host_bytes, NOW, NOW + 5, property_crc=True, long_topics=True
    )
    assert surroundings(late, early, long_topics=False)[1:] == (NOW + 5, NOW + 5, False, False)
    assert surroundings(None, late, long_topics=True)[1:3] == (NOW + 5, NOW + 5)
    with pytest.raises(ValueError, match="no good record"):
        surroundings(None, None, long_topics=True)


TOPICS = ["T", "OrderPaid", "%LMQ%a", "%LMQ%b", SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC]


@st.composite
def _claims(draw: st.DrawFn) -> tuple[Span, list[Claim]]:
    begin = draw(st.integers(AT, FILE_END - 8))
    end = draw(st.one_of(st.just(FILE_END), st.integers(begin + 1, FILE_END)))
    of = Span(begin, end, AT, FILE_END)
    place = st.integers(begin - 10, min(end, begin + 3000) + 10)
    unit = st.builds(Claim, st.sampled_from(TOPICS), st.integers(0, 3), st.integers(0, 50), place, st.integers(0, 900))
    return of, draw(st.lists(unit, max_size=12))


@given(_claims(), st.sampled_from([AROUND, AROUND_V6, AROUND_CRC]))
def test_whatever_is_claimed_the_range_is_filled(case: tuple[Span, list[Claim]], around: Surroundings) -> None:
    of, claims = case
    try:
        plan = placeholder_records(of, claims, "bad-magic", around)
    except ValueError:
        assert of.end - of.begin < filler_size_min(around) or of.end - of.begin < 8
        return
    found = filled(plan.records, of)
    satisfied = [claim for record, _ in found for claim in record.claims]
    assert sorted(satisfied + plan.dropped, key=repr) == sorted(claims, key=repr)
    for record, item in found:
        for claim in record.claims:
            assert isinstance(item, Message)
            assert claim.physical_offset == record.physical_offset
            assert (
                claim[:2] in {(place.topic, place.queue_id) for place in queue_destinations(item)}
                or len(record.claims) > 1
            )
