"""What rows show of many records: the same as the one-record decoder says, on every golden store."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import Message, tags_code
from rmqctl.kernels import row_scan
from rmqctl.kernels.row_scan import TextTable
from rmqctl.logfile.column_reader import Columns
from tests.conftest import READABLE_NAMES, unpack
from tests.support.log_maker import BORN_V6, STORE_V6, Record, write_log
from tests.support.record_runs import record_runs


def texts(offsets: Any, data: Any) -> list[bytes]:
    return [bytes(data[start:end]) for start, end in pairwise(offsets)]


def assert_as_decoder(columns: Columns, topics: TextTable, hosts: TextTable) -> None:
    rows, buffer = columns.rows, columns.buffer
    messages: list[Message] = [columns.message(row) for row in range(len(rows))]
    made = row_scan.describe(buffer, rows, topics, hosts, with_values=True)
    for name in ("body_crc", "born_timestamp", "prepared_transaction_offset", "flag", "reconsume_times"):
        assert made[name].tolist() == [getattr(message, name) for message in messages]
    assert [topics.texts[number] for number in made["topic"]] == [message.topic_bytes for message in messages]
    assert [hosts.texts[number] for number in made["born_host"]] == [message.born_host_bytes for message in messages]
    assert [hosts.texts[number] for number in made["store_host"]] == [message.store_host_bytes for message in messages]
    assert made["is_text"].all()
    assert made["tags_code"].tolist() == [tags_code(message.properties) for message in messages]
    for field, name in (("tags", "TAGS"), ("keys", "KEYS"), ("uniq_key", "UNIQ_KEY")):
        found = texts(*row_scan.gather(buffer, made[f"{field}_start"], made[f"{field}_length"]))
        assert found == [message.properties.get(name, "").encode() for message in messages]
    assert texts(*row_scan.gather(buffer, rows["body_start"], rows["body_length"])) == [
        bytes(message.body) for message in messages
    ]
    assert texts(*row_scan.msg_ids(buffer, columns.physical_offset, rows)) == [
        message.msg_id.encode() for message in messages
    ]
    offsets, pairs = row_scan.pairs(buffer, rows)
    names = texts(*row_scan.gather(buffer, pairs["name_start"], pairs["name_length"]))
    values = texts(*row_scan.gather(buffer, pairs["value_start"], pairs["value_length"]))
    for row, message in enumerate(messages):
        start, end = offsets[row], offsets[row + 1]
        assert [
            (name.decode(), value.decode()) for name, value in zip(names[start:end], values[start:end], strict=True)
        ] == [*message.properties.items()]


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    topics, hosts = TextTable(), TextTable()
    for columns in record_runs(unpack(name, tmp_path)):
        assert_as_decoder(columns, topics, hosts)
    assert topics.texts


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01\x02",
        b"a\x02b",
        b"a\x01",
        b"a\x011\x02a\x012\x02b\x013\x02a\x014",
        b"TAGS\x01x\x01y\x02TAGS\x01",
        b"\x02\x02a\x01b\x02",
    ],
)
def test_pairs_of_any_shape(raw: bytes, tmp_path: Path) -> None:
    write_log(tmp_path, [Record(properties=raw), Record(sys_flag=BORN_V6), Record(sys_flag=STORE_V6, topic="t")])
    for columns in record_runs(tmp_path):
        assert_as_decoder(columns, TextTable(), TextTable())


def test_more_topics_than_a_table_begins_with(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(topic=f"topic-{number}") for number in range(2_000)])
    topics = TextTable()
    for columns in record_runs(tmp_path):
        assert_as_decoder(columns, topics, TextTable())
    assert len(topics.texts) == 2_000


def test_text_that_is_no_utf8_is_marked(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(), Record(properties=b"TAGS\x01a\xff")])
    columns = next(record_runs(tmp_path))
    assert row_scan.describe(columns.buffer, columns.rows, TextTable(), TextTable(), with_values=True)[
        "is_text"
    ].tolist() == [True, False]
