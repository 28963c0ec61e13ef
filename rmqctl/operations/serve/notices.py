"""Remarks of the server's threads for the operator."""

from __future__ import annotations

import threading

NOTICES_MAX = 10_000  # different texts; further ones are dropped
TEXT_LENGTH_MAX = 500  # characters


class Notices:
    """Collect texts from several threads.

    Each text is kept only once, because a refused slave connects again every few seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._new: list[str] = []

    def add(self, text: str) -> None:
        """Add a text. A part of the text may come from a peer."""
        text = text[:TEXT_LENGTH_MAX]
        with self._lock:
            if text not in self._known and len(self._known) < NOTICES_MAX:
                self._known.add(text)
                self._new.append(text)

    def take(self) -> list[str]:
        """Return the texts that were added since the last call."""
        with self._lock:
            new, self._new = self._new, []
            return new
