"""RocketMQ's GroupTransferService: finishes puts that wait for slaves.

A broker waits for one put at a time. rmqctl checks all waiting puts in each round, with the same results.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rmqctl.store.write.put_message import PutMessageStatus
from rmqctl.store.write.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.store.write.group_commit_request import GroupCommitRequest

GROUP_TRANSFER_INTERVAL_SECONDS = 0.01


class GroupTransferService(ServiceThread):
    """Finishes the puts that wait for acknowledgements from slaves.

    A put gets PUT_OK if `is_acknowledged` returns True, or FLUSH_SLAVE_TIMEOUT after the put's deadline. When the
    service stops, every put that still waits gets FLUSH_SLAVE_TIMEOUT.
    """

    def __init__(self, is_acknowledged: Callable[[GroupCommitRequest], bool]) -> None:
        super().__init__("GroupTransferService", GROUP_TRANSFER_INTERVAL_SECONDS)
        self._is_acknowledged = is_acknowledged
        self._lock = threading.Lock()
        self._requests: list[GroupCommitRequest] = []

    def put_request(self, request: GroupCommitRequest) -> None:
        """Queue a request, and wake the service."""
        with self._lock:
            self._requests.append(request)
        self.wake_up()

    def notify_transfer_some(self) -> None:
        """Wake the service, because a slave has reported a new offset."""
        self.wake_up()

    def _work(self) -> None:
        with self._lock:
            requests, self._requests = self._requests, []
        now, waiting = time.monotonic(), []
        for request in requests:
            if self._is_acknowledged(request):
                request.finish(PutMessageStatus.PUT_OK)
            elif request.deadline <= now or self._stopped:
                request.finish(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            else:
                waiting.append(request)
        with self._lock:
            self._requests = waiting + self._requests
