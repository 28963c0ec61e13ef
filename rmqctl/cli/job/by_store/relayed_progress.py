"""The progress of work in a thread, shown while the main thread waits for it."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from rmqctl.cli.output.render import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class RelayedProgress:
    """The number of bytes that a thread has read.

    The thread calls `advance`. While the main thread waits, `shown` shows the progress, so that stderr never shows the
    progress of two stores at the same time.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._untold = 0
        self._tell: Callable[[int], None] | None = None

    def advance(self, count: int) -> None:
        """Add `count` bytes."""
        with self._lock:
            if self._tell is None:
                self._untold += count
            else:
                self._tell(count)

    @contextmanager
    def shown(self, mode: str, total: int, what: str) -> Iterator[None]:
        """Show the progress on stderr during the block.

        The arguments are those of `rmqctl.cli.output.render.progress`.
        """
        with progress(mode, total, what) as tell:
            with self._lock:
                if self._untold:
                    tell(self._untold)
                self._untold, self._tell = 0, tell
            try:
                yield
            finally:
                with self._lock:
                    self._tell = None
