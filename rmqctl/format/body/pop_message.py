"""The bodies of POP's messages in rmq_sys_REVIVE_LOG_CLUSTER (5.x): JSON.

The tag of a message gives the kind of the body:

    ck    a checkpoint: a group popped these messages of a queue (PopCheckPoint)
    ack   an acknowledgement of one message (AckMsg)
    bAck  an acknowledgement of several messages (BatchAckMsg, 5.2 and later)

A message that is not due yet is in rmq_sys_wheel_timer, with the same tag and body.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rmqctl.format.body import bounded_json

_SIGNS_MAX = 100_000  # in a body; a checkpoint has a few for each of the messages of one pop
Offset = Annotated[int, msgspec.Meta(ge=0)]
PopKey = tuple[str, str, int, int, int]  # topic, group, queueId, first queue offset, time of the pop (ms)


class Pop(msgspec.Struct):
    """The fields that a checkpoint and its acknowledgements have in common.

    Group `c` popped messages of queue `q` of topic `t`, from queue offset `so` on, at time `pt` (ms since 1970).
    """

    c: str
    t: str
    q: int
    so: Offset
    pt: int = 0

    @property
    def key(self) -> PopKey:
        """Return the key that a checkpoint shares with its acknowledgements."""
        return self.t, self.c, self.q, self.so, self.pt


class PopCheckpoint(Pop):
    """The body of a checkpoint.

    The group popped `n` messages; `d` has the distance of each message's queue offset from `so`. Without `d`, the
    messages have successive queue offsets. A bit of `bm` is set for each message that the group has acknowledged.
    """

    n: Annotated[int, msgspec.Meta(ge=0, le=127)] = 0
    bm: int = 0
    d: list[int] | None = None

    def offsets(self) -> set[int]:
        """Return the queue offsets of the popped messages."""
        return {self.so + distance for distance in self.d or range(self.n)}

    def unacknowledged(self) -> set[int]:
        """Return the queue offsets of the messages that `bm` does not mark."""
        distances = self.d or range(self.n)
        return {self.so + distance for bit, distance in enumerate(distances) if not self.bm >> bit & 1}


class PopAck(Pop):
    """The body of an acknowledgement of one message (`ao`) or of many (`aol`).

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
    """Return the checkpoint or acknowledgement in the body of a message.

    `tag` is the tag of the message, one of BODIES. Anyone may have sent the body. msgspec does not limit the depth of
    nesting or the size of integers. Therefore the function first checks the depth and the integers. Raises
    MsgspecError.
    """
    try:
        bounded_json.loads(body.decode(), _SIGNS_MAX)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.json.decode(body, type=BODIES[tag])
