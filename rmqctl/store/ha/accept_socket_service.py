"""RocketMQ's AcceptSocketService: accepts the connections of slaves."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ACCEPT_SECONDS = 0.2
AFTER_ERROR_SECONDS = 1.0  # for example, no descriptor is free


class AcceptSocketService:
    """Listens on a port of `host`.

    For each new connection, `on_connect` is called with the socket, the peer's host and the peer's port. Port 0 means
    any free port. The attribute `port` is the number of the port in use. Raises OSError if the port cannot be used.
    """

    def __init__(self, host: str, port: int, on_connect: Callable[[socket.socket, str, int], None]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self._listener.settimeout(ACCEPT_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self._on_connect = on_connect
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="AcceptSocketService", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop the thread, and close the port."""
        self._stopped.set()
        with suppress(OSError):  # only Linux wakes the thread
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                channel, address = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                self._stopped.wait(AFTER_ERROR_SECONDS)
                continue
            self._on_connect(channel, address[0], address[1])
