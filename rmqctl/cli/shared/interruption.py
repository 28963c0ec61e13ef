"""Ctrl-C, SIGTERM and SIGHUP while a verb writes.

The first signal is only recorded, so that the verb can end its work cleanly.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from rmqctl.cli.output.render import remark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def not_ignored(*signals: signal.Signals) -> list[signal.Signals]:
    """Return the given signals without the signals that the process ignores.

    A command under nohup ignores SIGHUP. A background command of a shell ignores SIGINT.
    """
    return [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]


class Interruption:
    """A block of code in which the first signal only sets the attribute `noted`.

    A second signal raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.noted = False
        self._is_waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in not_ignored(*SIGNALS)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """End the block immediately when a signal arrives, and set `noted`.

        Use `waiting` for work that may wait forever and changes nothing.
        """
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


class ChangeInterruption(Interruption):
    """A block of code for a change that is recorded in a journal.

    If a signal arrives before the call of `commit`, the verb ends without a change. After the call of `commit`, signals
    are ignored, and the change continues to its end. With `at_once`, the first signal before `commit` raises
    KeyboardInterrupt immediately. Without `at_once`, the first signal is only recorded, and `commit` raises
    KeyboardInterrupt.
    """

    def __init__(self, *, at_once: bool = True) -> None:
        super().__init__()
        self._at_once = at_once
        self._is_committed = False

    def commit(self) -> None:
        """Begin the change: from now on, ignore signals.

        Raises KeyboardInterrupt if a signal arrived before the change.
        """
        if self.noted:
            raise KeyboardInterrupt
        self._is_committed = True
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)  # Python does not reset SIG_IGN when it ends

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_committed:
            super().__exit__(kind, error, trace)
        if kind is KeyboardInterrupt:
            remark("nothing was changed")

    def _note(self, *_: object) -> None:
        super()._note()
        if self._at_once:
            raise KeyboardInterrupt
