"""RocketMQ's GroupCommitRequest: a put that waits for the disk or for slaves."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from typing import NamedTuple

from rmqctl.store.write.put_message import PutMessageStatus


class GroupCommitRequest(NamedTuple):
    """A put that waits until disk or slaves have the log up to `next_offset` (bytes)."""

    next_offset: int
    deadline: float  # on the clock of time.monotonic()
    done: Future[PutMessageStatus]
    ack_nums: int = 1  # brokers, with the master, that must have the message; 1 or less: one slave

    def finish(self, status: PutMessageStatus) -> None:
        """Set the status of the put; later calls are ignored."""
        try:
            self.done.set_result(status)
        except InvalidStateError:  # another service has finished the put
            return
