"""Stores that rmqctl wrote, served by a real broker: a real client gets every message over the wire, by queue, id, key
and time.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from rmqctl.format import properties
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.interop.readings import sizes
from tests.interop.served_content import (
    COMPRESSED,
    SETTINGS,
    Content,
    content,
    content_of,
    message_at,
    served_queues,
    to_be_delivered,
)
from tests.interop.written_stores import PROFILE_OF, SCENARIOS, written
from tests.real_store.harness import RealRocketMQ

pytestmark = pytest.mark.interop

LMQ_SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}


def serve(root: Path, version: str, scenario: str) -> dict[str, Any]:
    """What a client gets of each topic that a copy of the store has, as soon as all that is scheduled was delivered."""
    store = ReadOnlyStore(root)
    wanted = Counter({topic: 0 for topic, _ in store.queues})
    for key, queue in served_queues(store).items():
        wanted[key[0]] += queue.max_offset
    wanted += Counter(topic for topic, *_ in to_be_delivered(store, version))
    in_order = {topic: wanted[topic] for topic in sorted(wanted, key=lambda topic: topic.startswith(LMQ_PREFIX))}
    copy = root.with_name("served")
    shutil.copytree(root, copy)
    settings = SETTINGS | (LMQ_SETTINGS if "lmq" in scenario else {})
    return RealRocketMQ(version, timeout=150).serve(copy, in_order, geometry=sizes(scenario), settings=settings)


def assert_served(root: Path, answer: dict[str, Any], version: str) -> None:
    """Everything in our store came over the wire as it is, and besides it only what was scheduled, at
    its real topic.
    """
    store = ReadOnlyStore(root)
    end = store.commit_log.end()[0]
    got: dict[tuple[str, int], list[Content]] = {}
    delivered = []
    for row in answer["messages"]:
        if row["physicalOffset"] < end:
            got.setdefault((row["cqTopic"], row["cqQueueId"]), []).append(content(row))
        else:
            found = row["properties"]
            delivered.append(
                (row["topic"], row["queueId"], row["crc32"], found.get(properties.UNIQ_KEY), found.get(properties.KEYS))
            )
    queues = served_queues(store)
    assert got.keys() == queues.keys()
    for key, queue in queues.items():
        ours = [content_of(message_at(store, unit.physical_offset)) for unit in queue.units(0, queue.max_offset)]
        assert len(got[key]) == len(ours)
        for theirs, our in zip(got[key], ours, strict=True):
            assert theirs == our
    assert Counter(delivered) == Counter(to_be_delivered(store, version))
    assert_looked_up(store, answer, end)


def assert_looked_up(store: ReadOnlyStore, answer: dict[str, Any], end: int) -> None:
    by_id = [row for row in answer["byId"] if row["physicalOffset"] < end]
    assert by_id
    assert all(content(row) == content_of(message_at(store, row["physicalOffset"])) for row in by_id)
    for asked in answer["byKey"]:
        found = [message.physical_offset for message in store.by_key(asked["topic"], asked["key"])]
        if len(found) < asked["max"]:  # else delivered ones push older ones out
            assert [offset for offset in asked["physicalOffsets"] if offset < end] == found
    for row in answer["queues"]:
        for time, offset in row["offsetsByTime"]:
            unit = store.unit(row["topic"], row["queueId"], offset)
            if unit is not None:
                assert message_at(store, unit.physical_offset).store_timestamp == time


# test_written_stores has each version read each scenario: over the wire each goes once, and by both versions where
# their brokers or clients do otherwise, with what is scheduled and with light queues
CASES = [("4.9.7", scenario) for scenario in ("497-basic", "497-tx", "497-delay", "497-lmq", "broker-497")]
CASES += [("5.3.3", scenario) for scenario in ("471-batch", "471-ipv6", "497-delay", "497-lmq")]
CASES += [("5.3.3", scenario) for scenario in ("533-longtopic", "533-propcrc")]


def test_every_scenario_is_served() -> None:
    assert {scenario for _, scenario in CASES} == set(SCENARIOS)


@pytest.mark.parametrize(("version", "scenario"), CASES)
def test_a_broker_serves_what_we_wrote(
    version: str, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = written(scenario, PROFILE_OF[version], tmp_path, capsys)
    answer = serve(made, version, scenario)
    assert_served(made, answer, version)
    assert answer["byKey"]


@pytest.mark.parametrize(("version", "name"), [("4.9.7", "broker-497"), ("5.3.3", "broker-533")])
def test_a_broker_serves_what_it_wrote_and_what_we_appended(
    version: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old topics and new ones, compressed bodies, more queues than the broker gave a topic, and delays of the broker's
    first level.
    """
    root = unpack(name, tmp_path)
    rows = [
        {
            "topic": ("orders", "Fresh")[at % 2],
            "queueId": at % 6,
            "body": f"more {at}",
            "properties": {"KEYS": f"more-{at}"},
        }
        for at in range(200)
    ]
    rows += [
        {"topic": "Later", "queueId": 5, "body": f"later {at}", "properties": {"DELAY": "1", "KEYS": f"later-{at}"}}
        for at in range(10)
    ]
    packed = zlib.compress(b"compressible " * 500)
    rows += [
        {
            "topic": "Fresh",
            "body": packed.hex(),
            "bodyEncoding": "hex",
            "sysFlag": COMPRESSED,
            "properties": {"KEYS": "packed"},
        }
    ]
    lines = tmp_path / "more.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["append", str(root), "--from", str(lines)]) == 0
    capsys.readouterr()
    answer = serve(root, version, name)
    assert_served(root, answer, version)
    counts = Counter(
        row["cqTopic"]
        for row in answer["messages"]
        if row["properties"].get("KEYS", "").startswith(("more-", "later-", "packed"))
    )
    assert counts == {"orders": 100, "Fresh": 101, "Later": 10, SCHEDULE_TOPIC: 10}
