"""Static topics of 5.x: queues that clients see under other numbers and offsets.

config/topicQueueMapping.json has the queues of each static topic that this broker hosts, by globalId. Each is a list of
pieces, on this broker or on others; the last piece takes new messages. A message at queue offset q of a piece has the
offset logicOffset + q - startOffset for clients (TopicQueueMappingDetail and LogicQueueMappingItem of 5.5.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rmqctl.store.config.config_file import QUEUE_MAPPING_TABLE, QUEUE_MAPPINGS_CONFIG, table

if TYPE_CHECKING:
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class StaticPiece(msgspec.Struct, rename="camel"):
    """A piece of a static queue, which is a queue of broker `bname`."""

    bname: str
    queue_id: int
    logic_offset: int  # negative: not decided yet
    start_offset: int = 0
    end_offset: int = -1  # before startOffset: the piece has no end yet
    global_id: int = -1

    def offset(self, queue_offset: int) -> int | None:
        """Return which offset clients see; None if it is not decided yet."""
        if self.logic_offset < 0:
            return None
        end = self.end_offset if self.end_offset >= self.start_offset else queue_offset
        return self.logic_offset + max(min(queue_offset, end) - self.start_offset, 0)


class _Mapping(msgspec.Struct, rename="camel"):
    bname: str
    hosted_queues: dict[int, list[StaticPiece]]


def static_queues(store: ReadOnlyStore) -> dict[QueueKey, StaticPiece]:
    """Return the pieces on this broker by the queue; none if the file is not valid."""
    try:
        mappings = table(store.config(QUEUE_MAPPINGS_CONFIG), QUEUE_MAPPING_TABLE)
        topics = msgspec.convert(mappings, dict[str, _Mapping], strict=False)
    except msgspec.ValidationError:
        return {}
    found = {}
    for topic, mapping in topics.items():
        for global_id, pieces in mapping.hosted_queues.items():
            for piece in (one for one in pieces if one.bname == mapping.bname):
                piece.global_id = global_id
                found[topic, piece.queue_id] = piece
    return found
