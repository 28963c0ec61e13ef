"""RocketMQ's WaitNotifyObject: one call wakes all threads that wait."""

from __future__ import annotations

import threading


class WaitNotifyObject:
    """An event that several threads wait for; no thread misses a wake-up."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._wake_ups = 0

    def wakeup_all(self) -> None:
        """Wake all threads that wait; a busy thread does not wait the next time."""
        with self._condition:
            self._wake_ups += 1
            self._condition.notify_all()

    def all_wait_for_running(self, interval: float, seen: int) -> int:
        """Wait for a new wake-up, at most `interval` seconds; return their number.

        The thread passes this number as `seen` in its next call, and 0 in its first.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._wake_ups != seen, interval)
            return self._wake_ups
