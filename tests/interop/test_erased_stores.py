"""Stores with erased messages under the real broker: it starts, and serves all other messages at their offsets."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.format.message import ERASED
from rmqctl.operations.placeholder.record import NAME
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.interop.readings import sizes
from tests.interop.served_content import SETTINGS, content, content_of, message_at, served_queues
from tests.real_store.harness import RealRocketMQ
from tests.support.ran_command import ran

pytestmark = pytest.mark.interop


def erase(root: Path, *words: str) -> None:
    for key in words:
        assert ran("erase", root, "--key", key, "--yes").code == 3


def test_a_broker_serves_all_other_messages(tmp_path: Path) -> None:
    root = unpack("broker-497", tmp_path)
    whole = ReadOnlyStore(shutil.copytree(root, tmp_path / "whole"))
    erase(root, "poison-7", "poison-57", "tx61", "warm-0")
    store = ReadOnlyStore(root)
    end = store.commit_log.end()[0]
    queues = served_queues(store)
    wanted: Counter[str] = Counter()
    for (topic, _), queue in queues.items():
        wanted[topic] += queue.max_offset
    copy = shutil.copytree(root, tmp_path / "served")
    answer = RealRocketMQ("4.9.7", timeout=150).serve(copy, wanted, geometry=sizes("broker-497"), settings=SETTINGS)
    stored = [row for row in answer["messages"] if row["physicalOffset"] < end]
    erased = 0
    for (topic, queue_id), queue in queues.items():
        found = [row for row in stored if (row["cqTopic"], row["cqQueueId"]) == (topic, queue_id)]
        ours = [message_at(store, unit.physical_offset) for unit in queue.units(0, queue.max_offset)]
        assert [content(row) for row in found] == list(map(content_of, ours))
        for message in ours:
            is_erased = message.properties.get(NAME) == ERASED
            assert is_erased or message == message_at(whole, message.physical_offset)
            erased += is_erased
    assert erased >= 7


@pytest.mark.parametrize("is_abnormal", [False, True], ids=["stopped", "killed"])
def test_consumers_of_550_get_every_offset(is_abnormal: bool, golden: Callable[[str], Path]) -> None:
    root = golden("broker-550")
    erase(root, "poison-7", "tx61", "timer8", "pop20", "ck0")
    if is_abnormal:
        (root / "abort").touch()
    topics = ("orders", "payments", "popt", "timed", "events")
    ends: dict[tuple[str, int], int] = {
        key: queue.max_offset for key, queue in ReadOnlyStore(root).queues.items() if key[0] in topics
    }
    consumers = [(f"of-{topic}", topic, sum(end for key, end in ends.items() if key[0] == topic)) for topic in topics]
    settings = {"timerWheelEnable": "false"}
    rows = RealRocketMQ("5.5.0", timeout=150).consume(root, consumers, geometry=sizes("broker-550"), settings=settings)
    found = {(row["topic"], row["queueId"]): sorted(row["offsets"]) for row in rows}
    assert {key: offsets for key, offsets in found.items() if offsets} == {
        key: list(range(end)) for key, end in ends.items() if end
    }
