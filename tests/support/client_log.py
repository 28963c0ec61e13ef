"""What real clients logged (RealRocketMQ.traffic), as what `rmqctl trace` must then say of each message."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.real_store.harness import CHECKS_MAX

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
COMPRESSED = 1
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
RETRIES = 2
PRODUCER_OF = {"payments": "transactions", "timed": "newer", "popped": "newer"}
OF_SENT = {"batch": "stored", "delayed": "delivered", "timer": "delivered", "half": "commit"}
WAITING_TOPIC = {"delayed": SCHEDULE_TOPIC, "timer": TIMER_TOPIC, "half": HALF_TOPIC}

KEYS = ("kind", "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp")  # of a stage of `trace`

Event = Mapping[str, Any]
Progress = dict[tuple[str, str, int], int]
ClientRecord = tuple[str, str | None, str | None]
GroupState = tuple[str, str, int, int, str]


class ExpectedStage(NamedTuple):
    """A stage, as far as clients know it: None where they do not."""

    kind: str
    topic: str
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    store_timestamp: int | None = None

    def is_met_by(self, stage: Mapping[str, Any]) -> bool:
        return all(value is None or stage[name] == value for name, value in zip(KEYS, self, strict=True))


class ClientLog:
    """The events of a log by the UNIQ_KEY that the message has in the store."""

    def __init__(self, events: Iterable[Event], version: str) -> None:
        self.events = list(events)
        # 4.7.1 leaves the property DELAY in a retry: a dead letter waits for its delay once more
        self._dead_letters_wait = version == "4.7.1"
        self._traces_transactions = version != "4.7.1"
        self._key_of = {
            event["physicalOffset"]: event["message"]
            for event in self.events
            if event["event"] in ("consumed", "popped")
        }
        self.of_message: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if "message" in event:
                self.of_message[self._key(event)].append(event)

    def _key(self, event: Event) -> str:
        """Return the UNIQ_KEY; brokers since 4.9.7 give all messages of a batch that of the batch."""
        key: str = event["message"]
        return self._key_of.get(event.get("physicalOffset"), key) if event.get("kind") == "batch" else key

    def words(self) -> dict[str, str]:
        """Return UNIQ_KEY by each word of KEYS."""
        return {event["keys"]: self._key(event) for event in self.events if event["event"] == "sent"}

    def offsets(self) -> Progress:
        """Return the offset of each group, topic and queue, as the groups' own clients know it at their end."""
        found = [event for event in self.events if event["event"] == "offset"]
        return {(event["group"], event["topic"], event["queueId"]): event["offset"] for event in found}

    def stages(self, key: str) -> list[ExpectedStage]:
        """Return the stages of a message."""
        events = self.of_message[key]
        sent_back = _sent_back(events, dead_letters_wait=self._dead_letters_wait)
        return [*_sent(events), *_seen(events), *_transaction(events), *sent_back, *_popped(events)]

    def client_records(self, key: str) -> Counter[ClientRecord]:
        """Return (record, group, state) of what the clients' own message trace has of a message, if they lose none."""
        found: Counter[ClientRecord] = Counter()
        for event in self.of_message[key]:
            if event["event"] in ("consumed", "suspended"):
                found["SubBefore", event["group"], None] += 1
                found["SubAfter", None, None] += 1
            elif event["event"] == "recalled":
                found["Recall", PRODUCER_OF["timed"], None] += 1
            elif event["event"] == "sent" and (event["kind"] != "half" or self._traces_transactions):
                found["Pub", PRODUCER_OF.get(event["topic"], "shop"), None] += 1
            elif event["event"] in ("end", "check") and self._traces_transactions:
                found["EndTransaction", PRODUCER_OF["payments"], event["state"]] += 1
        return found

    def taken(self) -> set[tuple[str, int]]:
        """Return (group, physical offset) of each record that a group was given."""
        found = [event for event in self.events if event["event"] in ("consumed", "popped")]
        return {(event["group"], event["physicalOffset"]) for event in found}


def _sent(events: Iterable[Event]) -> Iterator[ExpectedStage]:
    """Yield the records that producers were told of; a consumer tells the rest of those in their own topic."""
    for event in events:
        if event["event"] == "recalled":
            yield ExpectedStage("timer", TIMER_TOPIC)
        elif event["event"] == "sent":
            kind: str = event["kind"]
            offset = event.get("physicalOffset")
            if kind in WAITING_TOPIC:
                yield ExpectedStage(kind, WAITING_TOPIC[kind], None, event["queueOffset"], offset)
            else:
                kind = OF_SENT.get(kind, kind)
                yield ExpectedStage(kind, event["topic"], event["queueId"], event["queueOffset"], offset)


def _seen(events: list[Event]) -> Iterator[ExpectedStage]:
    """Yield the records that consumers got and that no producer was told of."""
    sent = [event for event in events if event["event"] == "sent"]
    told = {event.get("physicalOffset") for event in sent}
    seen = {event["physicalOffset"]: event for event in events if event["event"] in ("consumed", "popped")}
    for offset, event in seen.items():
        if offset not in told:
            is_retry = event["topic"].startswith(RETRY_PREFIX)
            kind = "retry" if is_retry else OF_SENT[sent[0]["kind"]]
            place = (event["queueId"], event["queueOffset"], offset, event["storeTimestamp"])
            yield ExpectedStage(kind, event["topic"], *place)


def _transaction(events: Iterable[Event]) -> Iterator[ExpectedStage]:
    """Yield a half message for each check, and an op message for each answer of the producer that ends it."""
    checks = 0
    for event in events:
        if event["event"] == "check":
            checks += 1
            yield ExpectedStage("half", HALF_TOPIC, None, None, event["physicalOffset"])
        if event["event"] in ("end", "check") and event["state"] != "UNKNOW":
            yield ExpectedStage("op" if event["state"] == "COMMIT_MESSAGE" else "rollback", OP_TOPIC)
    if checks == CHECKS_MAX:
        yield ExpectedStage("stored", GIVEN_UP_TOPIC)


def _sent_back(events: Iterable[Event], *, dead_letters_wait: bool) -> Iterator[ExpectedStage]:
    """Yield what becomes of a message that a consumer could not handle: a delay before a retry, or a dead letter."""
    for event in events:
        if event["event"] == "consumed" and event["result"] == "later":
            is_dead = event["reconsumeTimes"] >= RETRIES
            if dead_letters_wait or not is_dead:
                yield ExpectedStage("delayed", SCHEDULE_TOPIC)
            if is_dead:
                yield ExpectedStage("dead-letter", DLQ_PREFIX + event["group"])


def _popped(events: Iterable[Event]) -> Iterator[ExpectedStage]:
    """Yield POP's own records, each of which comes by the timer.

    A pop makes a checkpoint. To ask for more time acknowledges the message, makes a new checkpoint, and is followed by
    an acknowledgement here.
    """
    checkpoints = {"ack": 1, "later": 2, "forgotten": 1}
    acknowledgements = {"ack": 1, "later": 2, "forgotten": 0}
    for event in events:
        if event["event"] == "popped":
            made = {
                "pop-checkpoint": checkpoints[event["result"]],
                "pop-ack": acknowledgements[event["result"]],
            }
            for kind, count in made.items():
                for _ in range(count):
                    yield ExpectedStage(kind, REVIVE_TOPIC)
                    yield ExpectedStage("timer", TIMER_TOPIC)


def differences(expected: Iterable[ExpectedStage], found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each stage that is missing, and each that is too much; stages that clients know exactly are met first."""
    left = list(found)
    missing = []
    for stage in sorted(expected, key=lambda stage: stage.count(None)):
        met = next((row for row in left if stage.is_met_by(row)), None)
        if met is None:
            missing.append(f"missing: {stage}")
        else:
            left.remove(met)
    return missing + [f"too much: {row}" for row in left]


def group_states(stages: Iterable[Mapping[str, Any]], progress: Progress) -> set[GroupState]:
    """Return (group, topic, queueId, queueOffset, state) of each group that has an offset in a stage's queue."""
    return {
        (group, topic, queue_id, stage["queueOffset"], "consumed" if offset > stage["queueOffset"] else "waiting")
        for stage in stages
        for (group, topic, queue_id), offset in progress.items()
        if (topic, queue_id) == (stage["topic"], stage["queueId"])
    }


def stored_progress(root: Path) -> Progress:
    """The groups' offsets in config/consumerOffset.json."""
    with closing(ReadOnlyStore(root)) as store:
        return {(one.owner, one.topic, one.queue_id): one.offset for one in consumer_offsets(store)}


def client_records_of(root: Path) -> dict[str, Counter[ClientRecord]]:
    """Return (record, group, state) of what RMQ_SYS_TRACE_TOPIC has, by UNIQ_KEY.

    Clients lose some under load: 4.9.7 lost 428 of 572 Pub records once.
    """
    found: dict[str, Counter[ClientRecord]] = defaultdict(Counter)
    with closing(ReadOnlyStore(root)) as store:
        for (topic, _), queue in store.queues.items():
            for unit in queue.units(0, queue.max_offset) if topic == TRACE_TOPIC else ():
                message = store.commit_log.message_at(unit.physical_offset)
                assert message is not None
                body = zlib.decompress(message.body) if message.sys_flag & COMPRESSED else bytes(message.body)
                for record in filter(None, body.decode().split("\x02")):
                    kind, *fields = record.split("\x01")
                    key, group = (fields[1], None) if kind == "SubAfter" else (fields[4], fields[2])
                    found[key][kind, group, fields[10] if kind == "EndTransaction" else None] += 1
    return found
