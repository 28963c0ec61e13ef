"""Count the slaves that have asked for the whole configuration.

A request does not name its slave. A slave keeps one connection to the port P, and one to the port P-2. Therefore the
server counts, for each host, the connections that asked for everything. This is the number of slaves on this host that
have the configuration.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from rmqctl.remoting.request_code import RequestCode

if TYPE_CHECKING:
    from rmqctl.remoting.address import Address

TOPICS = frozenset({int(RequestCode.GET_ALL_TOPIC_CONFIG)})  # asked at P-2
OTHERS = frozenset(
    {
        int(RequestCode.GET_ALL_CONSUMER_OFFSET),
        int(RequestCode.GET_ALL_DELAY_OFFSET),
        int(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    }
)
ASKED_BY_REPLICATE = frozenset({int(RequestCode.GET_BROKER_CONFIG), int(RequestCode.GET_BROKER_RUNTIME_INFO)})
COPY_SECONDS = 600.0
SETTLE_SECONDS = 2.0  # a slave stores the last answer, and a slave of 5.x asks for some more


class RequestsSeen:
    """The requests of all connections that are open now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Address, dict[int, float]] = {}  # for each code, when a connection asked first
        self._copied: dict[str, float] = {}  # when a host asked last what only `rmqctl replicate` asks

    def note(self, peer: Address, code: int) -> None:
        """Record the code of a request on a connection."""
        with self._lock:
            self._asked.setdefault(peer, {}).setdefault(code, time.monotonic())
            if code in ASKED_BY_REPLICATE:
                self._copied[peer.host] = time.monotonic()

    def forget(self, peer: Address) -> None:
        """Forget a connection that ended."""
        with self._lock:
            self._asked.pop(peer, None)

    def is_copied_to(self, host: str) -> bool:
        """Return whether `rmqctl replicate` runs at a host, or did in the last minutes."""
        with self._lock:
            return time.monotonic() - self._copied.get(host, -COPY_SECONDS) < COPY_SECONDS

    def configured(self) -> dict[str, int]:
        """Return the number of slaves that have the configuration, by host."""
        settled = time.monotonic() - SETTLE_SECONDS
        topics, others = defaultdict[str, int](int), defaultdict[str, int](int)
        with self._lock:
            for peer, asked in self._asked.items():
                codes = {code for code, when in asked.items() if when < settled}
                topics[peer.host] += codes >= TOPICS
                others[peer.host] += codes >= OTHERS
        return {host: min(count, others[host]) for host, count in topics.items()}
