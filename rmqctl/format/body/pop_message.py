"""The JSON of POP messages, and of the rows of kvStore/ (5.x).

The tag of a message in rmq_sys_REVIVE_LOG_CLUSTER gives the kind of its body:

    ck    a checkpoint: a group popped these messages of a queue (PopCheckPoint)
    ack   an acknowledgement of one message (AckMsg)
    bAck  an acknowledgement of several messages (BatchAckMsg, 5.2 and later)

A POP message that is not due yet is in rmq_sys_wheel_timer, with the same tag and body.

With popConsumerKVServiceEnable (5.3.2 and later), the RocksDB database kvStore/ has a row for each popped message, in
the family popState, until the message is acknowledged or revived (PopConsumerRecord):

    key    visible again at (ms, 8 bytes), group, `@`, topic, `@`, queueId (4 bytes), `@`, queue offset (8 bytes)
    value  the same as JSON, which is all that a broker reads
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rmqctl.format.body import bounded_json

_SIGNS_MAX = 100_000  # JSON signs in a body; a checkpoint has a few for each popped message
Offset = Annotated[int, msgspec.Meta(ge=0)]
PopKey = tuple[str, str, int, int, int]  # topic, group, queueId, first queue offset, time of the pop (ms)


class Pop(msgspec.Struct):
    """The common fields of a POP checkpoint and of its acknowledgements."""

    c: str  # consumer group
    t: str  # topic
    q: int  # queueId
    so: Offset  # first queue offset of the popped messages
    pt: int = 0  # time of the pop, ms since 1970

    @property
    def key(self) -> PopKey:
        """Return the key that links a POP checkpoint with its acknowledgements."""
        return self.t, self.c, self.q, self.so, self.pt


class PopCheckpoint(Pop):
    """The body of a POP checkpoint message."""

    n: Annotated[int, msgspec.Meta(ge=0, le=127)] = 0  # number of popped messages
    bm: int = 0  # a bit for each popped message; 1: acknowledged
    d: list[int] | None = None  # of each popped message, its queue offset minus `so`; None: they are successive
    it: int = 0  # ms from the pop until the messages are visible again

    @property
    def visible_ms(self) -> int:
        """When unacknowledged messages are visible again, in ms since 1970."""
        return self.pt + self.it

    def offsets(self) -> set[int]:
        """Return the queue offsets of the popped messages."""
        return {self.so + distance for distance in self.d or range(self.n)}

    def unacknowledged(self) -> set[int]:
        """Return the queue offsets of the messages whose bit in `bm` is 0."""
        distances = self.d or range(self.n)
        return {self.so + distance for bit, distance in enumerate(distances) if not self.bm >> bit & 1}


class PopAck(Pop):
    """The body of a POP acknowledgement of one message or several."""

    ao: int | None = None  # of one message; of several, it has no meaning
    aol: list[int] = []  # of several messages

    def offsets(self) -> set[int]:
        """Return the queue offsets of the acknowledged messages."""
        return set(self.aol or (() if self.ao is None else (self.ao,)))


class _Row(msgspec.Struct, rename="camel"):
    group_id: str
    topic_id: str
    queue_id: int
    offset: Offset
    pop_time: int = 0
    invisible_time: int = 0


CHECKPOINT_TAG = "ck"
BODIES: dict[str, type[PopCheckpoint | PopAck]] = {CHECKPOINT_TAG: PopCheckpoint, "ack": PopAck, "bAck": PopAck}


def decode(tag: str, body: bytes) -> PopCheckpoint | PopAck:
    """Return the checkpoint or acknowledgement in the body of a POP message.

    `tag` is the tag of the message, and a key of BODIES. Raises MsgspecError.
    """
    return msgspec.json.decode(_checked(body), type=BODIES[tag])


def decode_row(value: bytes) -> PopCheckpoint:
    """Return the value of a row of kvStore/ as the checkpoint of one message.

    Raises MsgspecError.
    """
    row = msgspec.json.decode(_checked(value), type=_Row)
    return PopCheckpoint(row.group_id, row.topic_id, row.queue_id, row.offset, row.pop_time, n=1, it=row.invisible_time)


def _checked(body: bytes) -> bytes:
    # any client may have sent a body, and msgspec limits neither the depth of nesting nor the size of integers
    try:
        bounded_json.loads(body.decode(), _SIGNS_MAX)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return body
