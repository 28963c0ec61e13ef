"""Encoding is decoding backwards: every record of every golden store comes out byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.encode import MessageExtBrokerInner, encode, properties_to_bytes, topic_field
from rmqctl.format.host import Host
from rmqctl.format.message import MAGIC_V1, MAGIC_V2, Message, decode
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, unpack
from tests.support.property_settings import PROPERTY

HOST = Host(bytes([10, 1, 2, 3]), 34567)
HOST_V6 = Host(bytes(range(16)), 10911)


def inner(message: Message) -> MessageExtBrokerInner:
    """A stored message as it was before it was stored."""
    return MessageExtBrokerInner(
        message.topic, bytes(message.body), message.properties, message.born_host, message.store_host,
        message.born_timestamp, message.queue_id, message.flag, message.sys_flag & ~(BORNHOST_V6 | STOREHOST_V6),
        message.reconsume_times, message.prepared_transaction_offset,
    )  # fmt: skip


@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if name != "471-cqext"])
def test_every_golden_record_comes_out_byte_for_byte(name: str, tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack(name, tmp_path))
    crc = name == "533-propcrc"
    count = 0
    for item in store.commit_log.scan():
        if not isinstance(item, Message):
            continue
        file = store.commit_log.queue.find(item.physical_offset)
        assert file is not None
        stored = file.read(item.physical_offset - file.file_from_offset, item.size)
        field = topic_field(item.topic, long_topics=True)
        assert field is not None
        assert field.magic == item.magic_code
        record = encode(inner(item), item.properties_bytes, field, property_crc=crc)
        assert record.placed(item.queue_offset, item.physical_offset, item.store_timestamp) == stored
        count += 1
    assert count > 40


@pytest.mark.parametrize("name", ["326-basic", "471-basic", "497-basic", "533-basic", "533-propcrc"])
def test_properties_are_written_as_each_version_does(name: str, tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack(name, tmp_path))
    messages = [item for item in store.commit_log.scan() if isinstance(item, Message) and item.properties_bytes]
    for message in messages:
        found = {key: value for key, value in message.properties.items() if key != "__CRC32#"}
        raw = properties_to_bytes(
            found, end_with_separator=not name.startswith("497"), property_crc=name == "533-propcrc"
        )
        covered = len(raw) - (20 if name == "533-propcrc" else 0)
        assert raw[:covered] == message.properties_bytes[:covered]
        assert len(raw) == len(message.properties_bytes)
    assert messages


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02\0"), min_size=1, max_size=20)
hosts = st.sampled_from([HOST, HOST_V6])


@PROPERTY
@given(
    topic=texts,
    body=st.binary(max_size=200),
    properties=st.dictionaries(texts, texts, max_size=5),
    born=hosts,
    store=hosts,
    numbers=st.tuples(st.integers(0, 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**62)),
    crc=st.booleans(),
)
def test_what_is_encoded_is_decoded(
    topic: str,
    body: bytes,
    properties: dict[str, str],
    born: Host,
    store: Host,
    numbers: tuple[int, int, int],
    crc: bool,
) -> None:
    queue_id, flag, offset = numbers
    message = MessageExtBrokerInner(topic, body, properties, born, store, 17, queue_id, flag, 0, 3, 5)
    raw = properties_to_bytes(properties, end_with_separator=False, property_crc=crc)
    field = topic_field(topic, long_topics=True)
    assert field is not None
    assert field.magic == MAGIC_V1
    record = encode(message, raw, field, property_crc=crc).placed(9, offset, 11)
    decoded = decode(record, 0, offset, len(record))
    assert isinstance(decoded, Message)
    assert inner(decoded)._replace(properties=properties) == message
    assert {key: value for key, value in decoded.properties.items() if key != "__CRC32#"} == properties
    assert (decoded.queue_offset, decoded.physical_offset, decoded.store_timestamp) == (9, offset, 11)


@pytest.mark.parametrize(
    ("length", "long_topics", "magic"),
    [
        (127, False, MAGIC_V1),
        (127, True, MAGIC_V1),
        (128, False, None),
        (128, True, MAGIC_V2),
        (32767, True, MAGIC_V2),
        (32768, True, None),
    ],
)
def test_a_topics_length_says_which_record_it_needs(length: int, long_topics: bool, magic: int | None) -> None:
    field = topic_field("t" * length, long_topics=long_topics)
    assert (field.magic if field is not None else None) == magic
