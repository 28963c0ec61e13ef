"""The JSON bodies of POP messages in rmq_sys_REVIVE_LOG_CLUSTER (5.x).

The tag of a POP message gives the kind of its body:

    ck    a checkpoint: a group popped these messages of a queue (PopCheckPoint)
    ack   an acknowledgement of one message (AckMsg)
    bAck  an acknowledgement of several messages (BatchAckMsg, 5.2 and later)

A POP message that is not due yet is in rmq_sys_wheel_timer, with the same tag and body.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rmqctl.format.body import bounded_json

_SIGNS_MAX = 100_000  # JSON signs in a body; a checkpoint has a few for each popped message
Offset = Annotated[int, msgspec.Meta(ge=0)]
PopKey = tuple[str, str, int, int, int]  # topic, group, queueId, first queue offset, time of the pop (ms)


class Pop(msgspec.Struct):
    """The common fields of a POP checkpoint and of its acknowledgements.

    The consumer group `c` popped messages from the queue `q` of the topic `t` at the time `pt` (ms since 1970). `so` is
    the first queue offset of the popped messages.
    """

    c: str
    t: str
    q: int
    so: Offset
    pt: int = 0

    @property
    def key(self) -> PopKey:
        """Return the key that links a POP checkpoint with its acknowledgements."""
        return self.t, self.c, self.q, self.so, self.pt


class PopCheckpoint(Pop):
    """The body of a POP checkpoint message.

    `n` is the number of popped messages. `d` has one number for each popped message: the message's queue offset minus
    `so`. Without `d`, the popped messages have successive queue offsets. `bm` has one bit for each popped message: 1
    means acknowledged.
    """

    n: Annotated[int, msgspec.Meta(ge=0, le=127)] = 0
    bm: int = 0
    d: list[int] | None = None

    def offsets(self) -> set[int]:
        """Return the queue offsets of the popped messages."""
        return {self.so + distance for distance in self.d or range(self.n)}

    def unacknowledged(self) -> set[int]:
        """Return the queue offsets of the messages whose bit in `bm` is 0."""
        distances = self.d or range(self.n)
        return {self.so + distance for bit, distance in enumerate(distances) if not self.bm >> bit & 1}


class PopAck(Pop):
    """The body of a POP acknowledgement of one message (`ao`) or several (`aol`).

    In an acknowledgement of several messages, `ao` has no meaning.
    """

    ao: int | None = None
    aol: list[int] = []

    def offsets(self) -> set[int]:
        """Return the queue offsets of the acknowledged messages."""
        return set(self.aol or (() if self.ao is None else (self.ao,)))


CHECKPOINT_TAG = "ck"
BODIES: dict[str, type[PopCheckpoint | PopAck]] = {CHECKPOINT_TAG: PopCheckpoint, "ack": PopAck, "bAck": PopAck}


def decode(tag: str, body: bytes) -> PopCheckpoint | PopAck:
    """Return the checkpoint or acknowledgement in the body of a POP message.

    `tag` is the tag of the message, and a key of BODIES. Any client may have sent the body. Because msgspec limits
    neither the depth of nesting nor the size of integers, `bounded_json` checks the body first. Raises MsgspecError.
    """
    try:
        bounded_json.loads(body.decode(), _SIGNS_MAX)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.json.decode(body, type=BODIES[tag])
