"""Stores with placeholders, served by a real broker: delayed ones never block, and a client gets the rest."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.message import PLACEHOLDER_SIGN, Message
from rmqctl.operations.placeholder.record import NAME
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.interop.readings import sizes
from tests.interop.served_content import SETTINGS, content, content_of, message_at, served_queues, to_be_delivered
from tests.interop.written_stores import PROFILE_OF, written
from tests.real_store.harness import RealRocketMQ
from tests.support.file_edits import overwrite
from tests.support.mended_stores import mend

pytestmark = pytest.mark.interop

BODY_AT = 90  # of a record with IPv4 hosts, two bytes into the body


def damage(root: Path) -> None:
    """Of each topic's messages the second loses its head, the third (of what is scheduled the fourth and fifth, too) a
    byte of its body.
    """
    seen: Counter[str] = Counter()
    for item in ReadOnlyStore(root).commit_log.scan():
        if not isinstance(item, Message) or len(item.body) < 60:
            continue
        seen[item.topic] += 1
        if seen[item.topic] == 2:
            overwrite(root, item.physical_offset, bytes([0xA5]) * 40)
        elif seen[item.topic] == 3 or (item.topic == SCHEDULE_TOPIC and seen[item.topic] in (4, 5)):
            overwrite(root, item.physical_offset + BODY_AT, bytes([item.body[2] ^ 1]))


def serve(root: Path, version: str, base: str, wanted: Counter[str]) -> dict[str, Any]:
    copy = root.with_name("served")
    shutil.copytree(root, copy)
    if not base.startswith(
        "broker"
    ):  # else the index of old files is gone, which the abnormal recovery does not build again
        (copy / "abort").touch()
    return RealRocketMQ(version, timeout=150).serve(copy, wanted, geometry=sizes(base), settings=SETTINGS)


CASES = [(base, version) for base in ("497-delay", "497-tx") for version in PROFILE_OF]
CASES += [("broker-497", "4.9.7"), ("broker-533", "5.3.3")]


@pytest.mark.parametrize(("base", "version"), CASES)
def test_a_broker_serves_marks(base: str, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack(base, tmp_path) if base.startswith("broker") else written(base, PROFILE_OF[version], tmp_path, capsys)
    damage(root)
    mended = mend(root)
    assert mended.dropped == []
    store = ReadOnlyStore(root)
    end = store.commit_log.end()[0]
    due = [message for message in to_be_delivered(store, version) if message[0] != "RMQ_SYS_TRANS_HALF_TOPIC"]
    wanted = Counter({key[0]: 0 for key in served_queues(store)})
    for key, queue in served_queues(store).items():
        wanted[key[0]] += queue.max_offset
    wanted += Counter(topic for topic, *_ in due)
    answer = serve(root, version, base, wanted)
    stored = [row for row in answer["messages"] if row["physicalOffset"] < end]
    delivered = [row for row in answer["messages"] if row["physicalOffset"] >= end]
    for (topic, queue_id), queue in served_queues(store).items():
        ours = [content_of(message_at(store, unit.physical_offset)) for unit in queue.units(0, queue.max_offset)]
        assert [content(row) for row in stored if (row["cqTopic"], row["cqQueueId"]) == (topic, queue_id)] == ours
    placeholders = [row for row in stored if row["preparedTransactionOffset"] == PLACEHOLDER_SIGN]
    assert {row["properties"][NAME] for row in placeholders} == {"bad-magic", "bad-body-crc"}
    assert Counter((row["topic"], row["queueId"], row["crc32"]) for row in delivered) == Counter(
        message[:3] for message in due
    )
    # the others' brokers have delivered all before
    assert len([row for row in delivered if NAME in row["properties"]]) == (3 if base == "497-delay" else 0)
