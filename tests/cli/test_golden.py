"""Every golden store, field by field, as the real broker that wrote it answers; and inspection that
leaves it as it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import GOLDEN_NAMES, Rmqctl, expected, tree_hash, unpack
from tests.support.golden_store import died, host

FIELDS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "size", "bodyCrc", "bodyLength", "flag", "sysFlag",
    "bornTimestamp", "storeTimestamp", "reconsumeTimes", "preparedTransactionOffset", "msgId",
)  # fmt: skip


@pytest.fixture(params=GOLDEN_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(name: str, tmp_path: Path) -> Path:
    return unpack(name, tmp_path)


def test_dump_gives_every_message_as_the_broker_does(name: str, store: Path, rmqctl: Rmqctl) -> None:
    dumped = {row["physicalOffset"]: row for row in rmqctl("dump", store, "-o", "jsonl").rows()}
    messages = expected(name)["messages"]
    assert messages
    for message in messages:
        got = dumped[message["physicalOffset"]]
        assert {field: got[field] for field in FIELDS} == {field: message[field] for field in FIELDS}
        assert host(got["bornHost"]) == host(message["bornHost"])
        assert host(got["storeHost"]) == host(message["storeHost"])
        if not message["cqTopic"].startswith("%LMQ%"):
            assert got["properties"] == message["properties"]


def test_queues_and_their_units_are_the_brokers(name: str, store: Path, rmqctl: Rmqctl) -> None:
    queues = {(row["topic"], row["queueId"]): row for row in rmqctl("queue", store, "-o", "jsonl").rows()}
    for queue in expected(name)["queues"]:
        if queue["maxOffset"] == 0:
            continue
        row = queues[queue["topic"], queue["queueId"]]
        if died(name):
            continue
        assert (row["minOffset"], row["maxOffset"]) == (queue["minOffset"], queue["maxOffset"])
        if queue["topic"].startswith("%LMQ%"):
            continue  # the broker's answer has the messages' own queue offsets there
        units = rmqctl("queue", store, queue["topic"], queue["queueId"], "-o", "jsonl").rows()
        assert [[unit["queueOffset"], unit["physicalOffset"], unit["size"]] for unit in units] == queue["entries"]


def test_look_ups_by_key_time_and_id_find_what_the_broker_finds(name: str, store: Path, rmqctl: Rmqctl) -> None:
    want = expected(name)
    for message in want["messages"][::37]:
        found = rmqctl("query", store, "--msg-id", message["msgId"], "-o", "jsonl").rows()
        assert [row["physicalOffset"] for row in found] == [message["physicalOffset"]]
    if died(name):
        return
    for asked in want["keyQueries"][::10]:
        found = rmqctl("query", store, "--topic", asked["topic"], "--key", asked["key"], "-o", "jsonl").rows()
        assert [row["physicalOffset"] for row in found][-asked["max"] :] == asked["physicalOffsets"]
        scanned = rmqctl(
            "query", store, "--topic", asked["topic"], "--key", asked["key"], "--scan", "-o", "jsonl"
        ).rows()
        assert {row["physicalOffset"] for row in found} <= {row["physicalOffset"] for row in scanned}
    for queue in want["queues"]:
        if queue["maxOffset"] and not queue["topic"].startswith("%LMQ%"):
            asked_at = ("--topic", queue["topic"], "--queue", queue["queueId"], "--at", queue["midTimestamp"])
            found = rmqctl("query", store, *asked_at, "-o", "jsonl").rows()
            assert [row["storeTimestamp"] for row in found] == [queue["midTimestamp"]]


def test_an_undamaged_store_has_no_findings(name: str, store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("verify", store, "--level", 1 if died(name) else 3, "-o", "json")
    assert result.document()["findings"] == []
    assert result.code == 0


def test_inspection_never_writes(name: str, store: Path, rmqctl: Rmqctl) -> None:
    before = tree_hash(store)
    topic = expected(name)["queues"][0]["topic"]
    for arguments in (
        ("info", store),
        ("verify", store),
        ("dump", store, "--limit", 3, "--body", "hex"),
        ("dump", store, "--tail", 3),
        ("queue", store),
        ("queue", store, topic, expected(name)["queues"][0]["queueId"]),
        ("query", store, "--topic", topic, "--key", "order-1"),
        ("query", store, "--unique-key", "none", "--scan"),
        ("config", "show", store),
    ):
        assert rmqctl(*arguments).code in (0, 1)
    assert tree_hash(store) == before
