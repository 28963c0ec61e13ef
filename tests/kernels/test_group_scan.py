"""Groups of messages: the counts that come of the decoded messages, one by one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from rmqctl.format.message import Message
from rmqctl.kernels import group_scan
from rmqctl.kernels.group_scan import BY_BROKER, BY_QUEUE, BY_TOPIC, GroupTable
from tests.support.log_maker import Record, write_log
from tests.support.record_runs import record_runs

Key = tuple[bytes, int, int]
Counted = tuple[int, ...]


def counted(messages: list[Message]) -> Counted:
    sizes, offsets, times = (
        [getattr(message, name) for message in messages] for name in ("size", "queue_offset", "store_timestamp")
    )
    limits = (min(sizes), max(sizes), min(offsets), max(offsets), min(times), max(times))
    return (len(messages), sum(sizes), sum(len(message.body) for message in messages), *limits)


FIELDS = (
    "messages", "bytes", "body_bytes", "min_size", "max_size", "min_queue_offset", "max_queue_offset",
    "first_store_timestamp", "last_store_timestamp",
)  # fmt: skip


@pytest.mark.parametrize(
    ("by", "interval"), [(BY_BROKER, 0), (BY_BROKER, 7), (BY_TOPIC, 0), (BY_TOPIC, 7), (BY_QUEUE, 0), (BY_QUEUE, 7)]
)
def test_groups_are_those_of_the_decoder(by: int, interval: int, tmp_path: Path) -> None:
    records = [
        Record(
            topic=f"topic-{number % 5}",
            queue_id=number % 3 - 1,
            queue_offset=number * 31 % 17,
            body=bytes(number % 11),
            store_timestamp=number * 13 % 29 - 5,
        )
        for number in range(200)
    ]
    write_log(tmp_path, records)
    wanted: dict[Key, list[Message]] = defaultdict(list)
    table, found = GroupTable(by, interval), {}
    for columns in record_runs(tmp_path):
        for message in map(columns.message, range(len(columns.rows))):
            topic, queue = message.topic_bytes if by >= BY_TOPIC else b"", message.queue_id if by == BY_QUEUE else 0
            begin = message.store_timestamp // interval * interval if interval else 0
            wanted[topic, queue, begin].append(message)
        assert table.add(columns.buffer, columns.rows) == []
    for group in table.taken():
        topic = table.topics.texts[group["topic"]] if by >= BY_TOPIC else b""
        key = (topic, int(group["queue_id"]), int(group["timestamp"]))
        found[key] = tuple(int(group[name]) for name in FIELDS)
    assert found == {key: counted(messages) for key, messages in wanted.items()}
    assert len(table.taken()) == 0


def test_a_full_table_gives_its_groups_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_scan, "SLOTS", 16)
    write_log(tmp_path, [Record(queue_id=number % 40) for number in range(80)])
    table = GroupTable(BY_QUEUE, 0)
    full = [group for columns in record_runs(tmp_path) for group in table.add(columns.buffer, columns.rows)]
    assert [len(groups) for groups in full] == [12] * 6
    messages = [0] * 40
    for groups in (*full, table.taken()):
        for group in groups:
            messages[group["queue_id"]] += int(group["messages"])
    assert messages == [2] * 40
