"""Messages as a broker serves them to clients, and the same of a store."""

from __future__ import annotations

import zlib
from typing import Any

from rmqctl.format import properties
from rmqctl.format.message import Message
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.config.config_file import table
from rmqctl.store.config.topics import SCHEDULE_TOPIC, QueueKey
from rmqctl.store.read.consume_queue import UnitQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore

COMPRESSED = 1  # 5.x clients take the flag off with the compression, 4.x ones leave it
# every level a second: the real broker delivers whatever is scheduled while the test waits
SETTINGS = {"messageDelayLevel": " ".join(["1s"] * 18)}
CRC_SIGN_OFF = 0x7FFFFFFF
Content = tuple[Any, ...]


def served_queues(store: ReadOnlyStore) -> dict[QueueKey, UnitQueue]:
    """The queues that have messages, of topics that a broker gives out: 4.9.7 itself never lists the op messages of
    transactions.
    """
    listed = table(store.config("topics.json"), "topicConfigTable")
    return {
        key: queue
        for key, queue in store.queues.items()
        if queue.max_offset and (key[0] in listed or key[0].startswith(LMQ_PREFIX))
    }


def to_be_delivered(store: ReadOnlyStore, version: str) -> list[Content]:
    """What is scheduled and was not delivered by the broker that scheduled it: real topic and queue, body, UNIQ_KEY,
    KEYS.

    5.x puts no message without a body (HookUtils.checkBeforePutMessage), tries it for ever, and never comes to those
    after it in the level's queue. Clients send none; the golden stores have some.
    """
    delivered = (store.config("delayOffset.json").content or {}).get("offsetTable", {})
    found = []
    for (topic, queue_id), queue in store.queues.items():
        if topic == SCHEDULE_TOPIC:
            for unit in queue.units(int(delivered.get(str(queue_id + 1), 0)), queue.max_offset):
                message = message_at(store, unit.physical_offset)
                if not message.body and version.startswith("5."):
                    break
                real = message.properties[properties.REAL_TOPIC], int(message.properties[properties.REAL_QUEUE_ID])
                found.append(
                    (
                        *real,
                        crc_of(message),
                        message.properties.get(properties.UNIQ_KEY),
                        message.properties.get(properties.KEYS),
                    )
                )
    return found


def message_at(store: ReadOnlyStore, physical_offset: int) -> Message:
    message = store.commit_log.message_at(physical_offset)
    assert message is not None
    return message


def body_of(message: Message) -> bytes:
    """The body as a client hands it out."""
    return zlib.decompress(message.body) if message.sys_flag & COMPRESSED else bytes(message.body)


def crc_of(message: Message) -> int:
    return zlib.crc32(body_of(message)) & CRC_SIGN_OFF


def content(row: dict[str, Any]) -> Content:
    """A message as a client sees it."""
    return (
        row["topic"], row["queueOffset"], row["physicalOffset"], row["size"], row["msgId"], row["bodyCrc"],
        row["bodyLength"], row["crc32"], row["flag"], row["sysFlag"] & ~COMPRESSED, row["bornTimestamp"],
        row["storeTimestamp"], row["reconsumeTimes"], row["preparedTransactionOffset"],
        tuple(sorted(row["properties"].items())),
    )  # fmt: skip


def content_of(message: Message) -> Content:
    """The same of a message in our store."""
    body = body_of(message)
    return (
        message.topic, message.queue_offset, message.physical_offset, message.size, message.msg_id, message.body_crc,
        len(body), crc_of(message), message.flag, message.sys_flag & ~COMPRESSED, message.born_timestamp,
        message.store_timestamp, message.reconsume_times, message.prepared_transaction_offset,
        tuple(sorted(message.properties.items())),
    )  # fmt: skip
