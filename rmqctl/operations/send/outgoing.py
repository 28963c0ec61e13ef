"""What is sent of a stored message, and which messages are sent.

A broker keeps in the properties how it delivers a message: the real topic of a delayed one, the retries of a group,
the receipt of POP. Sent again, these would delay, redirect or miscount it, so they go; all else stays, byte for byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.body.compression import decompressed
from rmqctl.format.body.inner_batch import InnerMessage, inner_messages
from rmqctl.format.message import PLACEHOLDER_SIGN
from rmqctl.format.sys_flag import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    INNER_BATCH,
    TRANSACTION_MASK,
    TransactionType,
)
from rmqctl.operations.append.message_from_json import UNIQUE_KEYS
from rmqctl.store.config.topics import DLQ_PREFIX, RETRY_PREFIX, is_broker_topic, is_delivery_topic, is_topic

if TYPE_CHECKING:
    from rmqctl.format.message import Message

# properties that say how a broker delivers a message, and what the old one wrote for consumers and for itself
_DELIVERY = properties.READ_BY_BROKERS.union(
    b"TIMER_DEL_UNIQKEY __transactionId__ CHECK_IMMUNITY_TIME_IN_SECONDS ORIGIN_MESSAGE_ID RECONSUME_TIME "
    b"MAX_RECONSUME_TIMES CONSUME_START_TIME DLQ_ORIGIN_MESSAGE_ID POP_CK_OFFSET MIN_OFFSET MAX_OFFSET CLUSTER "
    b"MSG_REGION TRACE_ON DUP_INFO __CRC32#".split()
)
_NAMES = b"|".join(map(re.escape, _DELIVERY))
_SEPARATOR = properties.PROPERTY_SEPARATOR.encode()
# WAIT=false would hide that the message was not flushed or not replicated
_GOES = re.compile(rb"\x02(?:(?:%s|__RMQ\.TRANSIENT\.[^\x01\x02]*)\x01[^\x02]*|WAIT\x01(?i:false)(?=\x02|$))" % _NAMES)
_UNIQ_KEY = re.compile(rb"\x02" + properties.UNIQ_KEY.encode() + rb"\x01[^\x02]*")
_SENT_FLAGS = COMPRESSED | COMPRESSION_TYPE_MASK
_UNSENT = (TransactionType.PREPARED, TransactionType.ROLLBACK)


class Outgoing(NamedTuple):
    """A record to send: a message, or those of an inner batch (5.x) together."""

    physical_offset: int
    msg_id: str  # the record's offsetMsgId in the store it comes from
    topic: str  # to which it goes
    queue_id: int  # in the store
    sys_flag: int  # only the bits of the compression
    messages: int
    data: bytes  # the messages as a batch has them: TOTALSIZE MAGIC BODYCRC FLAG BODY PROPERTIES


class LeftOut(NamedTuple):
    """A record that is not to be sent."""

    why: str


@dataclass(frozen=True)
class Selection:
    """Which messages are sent, and where to.

    `dead_letters` is a group, "" for those of all groups, or None. With it or `retries`, only these are sent.
    """

    topic_to: str | None = None
    dead_letters: str | None = None
    retries: bool = False
    new_ids: bool = False
    # by topic: why none of its messages is sent, or "", and where they go; None: each says where
    _of_topic: dict[bytes, tuple[str, str | None]] = field(default_factory=dict, init=False, compare=False)

    def outgoing(self, message: Message) -> Outgoing | LeftOut:
        """Return what is sent of a record.

        Raises BodyError or ValueError if an inner batch cannot be read.
        """
        why, target = self._of_topic.get(message.topic_bytes) or self._look_up(message.topic_bytes)
        why = why or _why_not(message)
        if why:
            return LeftOut(why)
        target = self._origin(message) if target is None else target
        if not target:
            return LeftOut("no topic of origin")
        if message.sys_flag & INNER_BATCH:
            inner = [*inner_messages(decompressed(message.sys_flag, message.body))]
            sys_flag, count = 0, len(inner)
            data = b"".join(self._encoded(one.flag, one.body, one.properties) for one in inner)
        else:
            sys_flag, count = message.sys_flag & _SENT_FLAGS, 1
            data = self._encoded(message.flag, bytes(message.body), message.properties_bytes)
        place = message.physical_offset, message.msg_id
        return Outgoing._make((*place, target, message.queue_id, sys_flag, count, data))

    def _look_up(self, name: bytes) -> tuple[str, str | None]:
        topic = name.decode("utf-8", "replace")
        are_asked = self.dead_letters is not None or self.retries
        target = self.topic_to or (None if are_asked else topic if is_target(topic) else "")
        found = self._of_topic[name] = self._why_none(topic), target
        return found

    def _why_none(self, topic: str) -> str:
        if is_delivery_topic(topic):
            return "delayed, half or POP's own"
        if is_broker_topic(topic) or topic.startswith(properties.LMQ_PREFIX):
            return "system topic"
        if self.dead_letters is None and not self.retries:
            kinds = {RETRY_PREFIX: "retry", DLQ_PREFIX: "dead letter"}
            return next((kind for prefix, kind in kinds.items() if topic.startswith(prefix)), "")
        is_dead = self.dead_letters is not None and (
            topic == DLQ_PREFIX + self.dead_letters if self.dead_letters else topic.startswith(DLQ_PREFIX)
        )
        return "" if is_dead or (self.retries and topic.startswith(RETRY_PREFIX)) else "other topic"

    @staticmethod
    def _origin(message: Message) -> str:
        found = message.properties
        topic = found.get("DLQ_ORIGIN_TOPIC") or found.get("RETRY_TOPIC") or ""
        group = RETRY_PREFIX + found.get("ORIGIN_GROUP", "")
        if not topic and message.topic.startswith((f"{group}_", f"{group}+")):  # POP's retries
            topic = message.topic[len(group) + 1 :]
        return topic if is_target(topic) else ""

    def _encoded(self, flag: int, body: bytes, pairs: bytes) -> bytes:
        kept = _GOES.sub(b"", _SEPARATOR + pairs.removesuffix(_SEPARATOR))
        if self.new_ids:
            kept = _UNIQ_KEY.sub(b"", kept) + f"\x02{properties.UNIQ_KEY}\x01{UNIQUE_KEYS.take()}".encode()
        return InnerMessage(flag, body, kept[1:]).encoded()


@lru_cache(maxsize=4096)
def is_target(topic: str) -> bool:
    """Return whether producers may send to a topic."""
    return is_topic(topic) and not (is_broker_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)))


def _why_not(message: Message) -> str:
    if message.sys_flag & TRANSACTION_MASK in _UNSENT:
        return "uncommitted transaction"
    return "placeholder" if message.prepared_transaction_offset == PLACEHOLDER_SIGN else ""
