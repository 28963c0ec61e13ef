"""Counts of puts, in RocketMQ's buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.store.engine.store_stats import BUCKETS, StoreStats
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus
from tests.support.small_store import created, message

REFUSED = PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)


class Clock:
    """A clock that is set by hand (ms)."""

    now = 0.0

    def __call__(self) -> float:
        return self.now / 1000


@pytest.mark.parametrize(
    ("milliseconds", "bucket"),
    [
        (0, "[<=0ms]"), (0.9, "[<=0ms]"), (1, "[0~10ms]"), (9.9, "[0~10ms]"), (10, "[10~50ms]"), (50, "[50~100ms]"),
        (100, "[100~200ms]"), (200, "[200~500ms]"), (500, "[500ms~1s]"), (1000, "[1~2s]"), (2000, "[2~3s]"),
        (3000, "[3~4s]"), (4000, "[4~5s]"), (5000, "[5~10s]"), (9999, "[5~10s]"), (10_000, "[10s~]"), (1e6, "[10s~]"),
    ],
)  # fmt: skip
def test_a_time_is_in_its_bucket(milliseconds: float, bucket: str) -> None:
    clock = Clock()
    stats = StoreStats(clock)
    begin = stats.now()
    clock.now += milliseconds + 1e-6
    stats.record(begin, [REFUSED])
    document = stats.document()
    assert {name for name, count in document["putMessageDistributeTime"].items() if count} == {bucket}
    assert (document["putMessageEntireTimeMax"], document["putMessageFailedTimes"]) == (int(milliseconds), 1)


def test_nothing_was_put() -> None:
    document = StoreStats().document()
    assert (document["putMessageTimesTotal"], document["putTps"], document["putMessageAverageSize"]) == (0, 0.0, 0.0)
    assert list(document["putMessageDistributeTime"]) == list(BUCKETS)


def test_a_store_counts_only_when_it_is_asked(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    assert store.put_message(message(0, body=bytes(3000))).is_ok
    stats = store.stats = StoreStats()
    sizes = [result.append.wrote_bytes for number in range(10) if (result := store.put_message(message(number))).append]
    batch = store.put_messages([message(0, topic="Batch", body=bytes(size)) for size in (5, 500)])
    assert batch.append is not None
    assert not store.put_message(message(topic="")).is_ok
    assert store.put_message(message(properties={"DELAY": "1"})).is_ok
    store.close()
    document = stats.document()
    assert document["putMessageTopicTimesTotal"] == {"OrderPaid": 10, "Batch": 2, "SCHEDULE_TOPIC_XXXX": 1}
    assert document["putMessageTopicSizeTotal"]["OrderPaid"] == sum(sizes)
    assert document["putMessageTimesTotal"] == 13
    assert (
        document["putMessageSizeMax"]
        == batch.append.wrote_offset + batch.append.wrote_bytes - batch.append.physical_offsets[1]
    )
    assert document["putMessageFailedTimes"] == 1
    assert sum(document["putMessageDistributeTime"].values()) == 13  # a batch is one put
    assert document["putTps"] > 0
