"""RocketMQ's GroupCommitRequest: a put that waits for the disk or for slaves."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from typing import NamedTuple

from rmqctl.store.write.put_message import PutMessageStatus


class GroupCommitRequest(NamedTuple):
    """A put that waits until disk or slaves have the log up to `next_offset` (bytes).

    `deadline` is a time on the clock of time.monotonic(). `ack_nums` is the number of brokers that must have the
    message, including the master. With an `ack_nums` of 1 or less, the put waits for one slave.
    """

    next_offset: int
    deadline: float
    done: Future[PutMessageStatus]
    ack_nums: int = 1

    def finish(self, status: PutMessageStatus) -> None:
        """Set the status of the put; later calls are ignored."""
        try:
            self.done.set_result(status)
        except InvalidStateError:  # another service has finished the put
            return
