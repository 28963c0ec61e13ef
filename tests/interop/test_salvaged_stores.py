"""Salvaged stores, served by a real broker: every whole message, in its place."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.format.message import PLACEHOLDER_SIGN
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, unpack
from tests.interop.readings import sizes
from tests.interop.served_content import SETTINGS, content, content_of, message_at, served_queues, to_be_delivered
from tests.real_store.harness import RealRocketMQ

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(("base", "version"), [("broker-497", "4.9.7"), ("broker-533", "5.3.3")])
@pytest.mark.parametrize("holes", ["placeholder", "compact"])
def test_a_broker_serves_all_that_is_whole(base: str, version: str, holes: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    source, new = unpack(base, tmp_path), tmp_path / "new"
    first, second, *others = sorted((source / "commitlog").iterdir())
    second.unlink()
    for number, file in enumerate((first, *others)):
        file.rename(file.with_name(f"FILE{number:04}.CHK"))
    with (source / "commitlog" / "FILE0000.CHK").open("r+b") as broken:
        broken.seek(51200)
        broken.write(bytes(512))
    assert rmqctl("salvage", source, "--to", new, "--holes", holes).code == 1
    store = ReadOnlyStore(new)
    end = store.commit_log.end()[0]
    queues = served_queues(store)
    wanted = Counter({topic: 0 for topic, _ in queues})
    for (topic, _), queue in queues.items():
        wanted[topic] += queue.max_offset
    wanted += Counter(topic for topic, *_ in to_be_delivered(store, version) if topic != "RMQ_SYS_TRANS_HALF_TOPIC")
    copy = tmp_path / "served"
    shutil.copytree(new, copy)
    answer = RealRocketMQ(version, timeout=150).serve(copy, wanted, geometry=sizes(base), settings=SETTINGS)
    stored = [row for row in answer["messages"] if row["physicalOffset"] < end]
    for (topic, queue_id), queue in queues.items():
        ours = [content_of(message_at(store, unit.physical_offset)) for unit in queue.units(0, queue.max_offset)]
        assert [content(row) for row in stored if (row["cqTopic"], row["cqQueueId"]) == (topic, queue_id)] == ours
    assert any(row["preparedTransactionOffset"] == PLACEHOLDER_SIGN for row in stored)
