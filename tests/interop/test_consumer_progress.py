"""`rmqctl lag` and mqadmin's consumerProgress of the real broker, of the same store: every group, topic and queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.support.group_offsets import add_offsets

pytestmark = pytest.mark.interop

GEOMETRY = Geometry(commitlog_file_size=256 * 1024, queue_file_units=300, index_slots=1000, index_entries=4000)
# without timers, the broker revives no popped message while it is asked
SETTINGS = {"timerWheelEnable": "false"}
FURTHER = {
    "orders@audit": {"0": 10, "1": 0, "3": 50},  # no offset in queue 2
    "payments@audit": {"0": 1_000_000},  # after the end
    "events@behind": {"0": 0, "1": 0, "2": 0, "3": 0, "7": 3},  # the last queue does not exist
    "gone@behind": {"0": 5},  # nor does the topic
}


def key_of(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["group"], row["topic"], row["queueId"]


@pytest.mark.parametrize(
    ("name", "version"), [("broker-497", "4.9.7"), ("broker-533", "5.3.3"), ("broker-550", "5.5.0")]
)
def test_lag_is_what_mqadmin_says(name: str, version: str, golden: Callable[[str], Path], rmqctl: Rmqctl) -> None:
    store = golden(name)
    offsets = add_offsets(store, FURTHER)
    topics = set(ReadOnlyStore(store).listed_topics)
    ours = {key_of(row): row for row in rmqctl("lag", store, "-o", "json").document()["groups"]}
    groups = sorted({key.partition("@")[2] for key in offsets})
    said = RealRocketMQ(version, timeout=120).consumer_progress(store, groups, geometry=GEOMETRY, settings=SETTINGS)
    assert {row["group"] for row in said} == set(groups)
    for row in said:
        found = ours[key_of(row)]
        assert (found["maxOffset"], found["offset"] or 0) == (row["brokerOffset"], row["consumerOffset"]), row
        assert found["behind"] == row["brokerOffset"] - row["consumerOffset"], row
    # mqadmin leaves out topics that topics.json does not list, and queues beyond readQueueNums
    unsaid = {key for key, row in ours.items() if row["offset"] is not None} - {key_of(row) for row in said}
    assert {(topic, queue_id) for _, topic, queue_id in unsaid if topic in topics} == {("events", 7)}
