"""RocketMQ's ServiceThread: a thread that works until it is shut down."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class ServiceThread(ABC):
    """A thread that works every `interval` seconds, or earlier when it is woken.

    It runs until `shutdown` is called.
    """

    def __init__(self, name: str, interval: float) -> None:
        self._interval = interval
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake_up(self) -> None:
        """Wake the service for a round of work."""
        self._wake.set()

    def shutdown(self) -> None:
        """Stop the thread, and then do one last round of work."""
        self._stopped = True
        self._wake.set()
        self._thread.join()
        self._work()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(self._interval)
            self._wake.clear()
            self._work()

    @abstractmethod
    def _work(self) -> None:
        """Do all work that is due."""
