"""Count the slaves that have asked for the whole configuration.

A request does not name the slave that sent it. A slave keeps one connection to the port P, and one connection to the
port P-2. For each host and each port, the server counts the connections on which all expected requests have arrived.
For each host, the smaller of the two counts is the number of slaves with the configuration.
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
    """The codes of the requests that have arrived on each open connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Address, dict[int, float]] = {}  # the time of the first request with each code
        self._copied: dict[str, float] = {}  # the time of a host's last request that only `rmqctl replicate` sends

    def note(self, peer: Address, code: int) -> None:
        """Record that a request with this code has arrived on a connection."""
        with self._lock:
            self._asked.setdefault(peer, {}).setdefault(code, time.monotonic())
            if code in ASKED_BY_REPLICATE:
                self._copied[peer.host] = time.monotonic()

    def forget(self, peer: Address) -> None:
        """Forget a connection that ended."""
        with self._lock:
            self._asked.pop(peer, None)

    def is_copied_to(self, host: str) -> bool:
        """Return whether `rmqctl replicate` ran on a host in the last 10 minutes."""
        with self._lock:
            return time.monotonic() - self._copied.get(host, -COPY_SECONDS) < COPY_SECONDS

    def configured(self) -> dict[str, int]:
        """Return, for each host, how many slaves have got the configuration."""
        settled = time.monotonic() - SETTLE_SECONDS
        topics, others = defaultdict[str, int](int), defaultdict[str, int](int)
        with self._lock:
            for peer, asked in self._asked.items():
                codes = {code for code, when in asked.items() if when < settled}
                topics[peer.host] += codes >= TOPICS
                others[peer.host] += codes >= OTHERS
        return {host: min(count, others[host]) for host, count in topics.items()}
