"""Ctrl-C and SIGTERM for a verb that writes: noted, so that what was begun is ended in order."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class Interruption:
    """While it is entered, the first signal only sets `noted`; a second one is raised where it comes, as KeyboardInterrupt."""

    def __init__(self) -> None:
        self.noted = False
        self._is_waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around what may wait for ever and changes nothing: there the signal ends it, and is noted."""
        self._is_waiting = True
        try:
            yield
        except KeyboardInterrupt:
            if not self.noted:
                raise
        finally:
            self._is_waiting = False

    def _note(self, *_: object) -> None:
        again, self.noted = self.noted, True
        if again or self._is_waiting:
            raise KeyboardInterrupt
