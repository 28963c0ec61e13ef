"""Messages of real brokers, by the letter of the contract, against a reading of the whole log one record at a time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.forensics.trace.document import document
from rmqctl.forensics.trace.trace import Question, Trace
from rmqctl.format.message import Message
from rmqctl.store.read.read_only_store import ReadOnlyStore

Golden = Callable[[str], Path]
BROKERS = ("broker-497", "broker-533", "broker-550")
BY_TOPIC = {
    "SCHEDULE_TOPIC_XXXX": {"delayed"},
    "rmq_sys_wheel_timer": {"timer"},
    "RMQ_SYS_TRANS_HALF_TOPIC": {"half"},
}
BY_PREFIX = {"%RETRY%": {"retry"}, "%DLQ%": {"dead-letter"}}
POP = {"ck": {"pop-checkpoint"}, "ack": {"pop-ack"}}


class Log:
    """All messages of a store, and what the contract expects of `trace` for one UNIQ_KEY."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self.messages = [item for item in store.commit_log.scan() if isinstance(item, Message)]
        self.by_key: dict[str, list[Message]] = defaultdict(list)
        for message in self.messages:
            if "UNIQ_KEY" in message.properties:
                self.by_key[message.properties["UNIQ_KEY"]].append(message)
        self.ops = [message for message in self.messages if message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"]
        self.pops = [
            (message, json.loads(bytes(message.body)))
            for message in self.messages
            if message.properties.get("TAGS") in POP and message.topic.startswith("rmq_sys_")
        ]
        self.offsets = (store.config("consumerOffset.json").content or {})["offsetTable"]

    def kinds(self, key: str) -> dict[int, set[str]]:
        """The possible kinds of each stage, by its physical offset."""
        found: dict[int, set[str]] = {}
        awaited: set[str | None] = set()
        own = self.by_key[key]
        for message in own:
            found[message.physical_offset] = self._kind(message, awaited)
            if message.topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
                awaited.add(message.properties.get("REAL_TOPIC"))
        halves = {str(message.queue_offset) for message in own if message.topic == "RMQ_SYS_TRANS_HALF_TOPIC"}
        for op in self.ops:
            if halves & set(bytes(op.body).decode().split(",")):
                found[op.physical_offset] = {"op", "rollback"}
        for message, body in self.pops:
            if message not in own and any(self._is_meant(body, one) for one in own):
                is_timer = message.topic == "rmq_sys_wheel_timer"
                found[message.physical_offset] = {"timer"} if is_timer else POP[message.properties["TAGS"]]
        return found

    def _kind(self, message: Message, awaited: set[str | None]) -> set[str]:
        known = BY_TOPIC.get(message.topic)
        known = known or next((kind for prefix, kind in BY_PREFIX.items() if message.topic.startswith(prefix)), None)
        if known is not None:
            return known
        if message.sys_flag & 12 == 8:
            return {"commit"}
        return {"delivered"} if message.topic in awaited else {"stored", "resent"}

    def _is_meant(self, body: dict[str, Any], message: Message) -> bool:
        if (body["t"], body["q"]) != (message.topic, message.queue_id):
            return False
        return message.queue_offset in ([body["so"] + one for one in body["d"]] if "d" in body else [body["ao"]])

    def states(self, places: set[tuple[str, int, int]]) -> Iterator[tuple[tuple[str, str, int, int], str]]:
        """The state of each group with an offset at each place: consumed or waiting."""
        for topic, queue_id, queue_offset in places:
            for key, offsets in self.offsets.items():
                of_topic, _, group = key.partition("@")
                if of_topic == topic and str(queue_id) in offsets:
                    is_consumed = offsets[str(queue_id)] > queue_offset
                    yield (group, topic, queue_id, queue_offset), "consumed" if is_consumed else "waiting"


def check_keys(root: Path, step: int, *, by_scan: bool) -> int:
    store = ReadOnlyStore(root)
    log = Log(store)
    at = {message.physical_offset: message for message in log.messages}
    rare = [key for key, found in log.by_key.items() if len(found) > 1]
    keys = list(log.by_key)[::step] + rare[:: max(step // 10, 1)]
    for key in keys:
        trace = Trace([store], Question(unique_key=key), threads=1, warm_up=lambda: None, by_scan=by_scan)
        found = document(trace, [str(root)])
        kinds = log.kinds(key)
        assert {row["physicalOffset"] for row in found["stages"]} == kinds.keys(), key
        assert all(row["kind"] in kinds[row["physicalOffset"]] for row in found["stages"]), key
        places = {(at[offset].topic, at[offset].queue_id, at[offset].queue_offset) for offset in kinds}
        states = {
            (row["group"], row["topic"], row["queueId"], row["queueOffset"]): row["state"] for row in found["groups"]
        }
        assert dict(log.states(places)).items() <= states.items(), key
        assert all(row["reachable"] for row in found["stages"]), key
    return len(keys)


@pytest.mark.parametrize("name", BROKERS)
def test_some_keys_by_the_index(name: str, golden: Golden) -> None:
    assert check_keys(golden(name), 40, by_scan=False) > 30


@pytest.mark.parametrize("name", BROKERS)
def test_a_few_keys_by_a_scan(name: str, golden: Golden) -> None:
    assert check_keys(golden(name), 300, by_scan=True) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKERS)
def test_every_key_by_the_index(name: str, golden: Golden) -> None:
    assert check_keys(golden(name), 1, by_scan=False) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKERS)
def test_many_keys_by_a_scan(name: str, golden: Golden) -> None:
    assert check_keys(golden(name), 10, by_scan=True) > 100
