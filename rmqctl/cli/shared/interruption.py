"""Ctrl-C, SIGTERM and SIGHUP while a verb writes.

The first signal is only recorded, so that the verb can end its work cleanly.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from rmqctl.cli.output.render import remark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REPEAT_SECONDS = 0.01
_IS_OVER = threading.Event()  # the command has ended, or is reporting its end
_IS_REPETITION = threading.Event()  # the next signal is a repetition


def not_ignored(*signals: signal.Signals) -> list[signal.Signals]:
    """Return the given signals without the signals that the process ignores.

    A command under nohup ignores SIGHUP. A background command of a shell ignores SIGINT.
    """
    return [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]


def repeat_dropped_interrupts() -> None:
    """Repeat a signal if Python dropped its KeyboardInterrupt.

    Python drops any exception in a destructor or in a weakref callback, and calls sys.unraisablehook. A signal can
    arrive during a destructor or a callback. If rmqctl did not repeat the signal, the signal would have no effect. The
    process must have handlers of its own for SIGTERM and SIGHUP. Call this function in the main thread.
    """
    report, main_thread = sys.unraisablehook, threading.get_ident()

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            report(dropped)
            return
        timer = threading.Timer(REPEAT_SECONDS, _repeat, [main_thread])
        timer.daemon = True
        timer.start()

    sys.unraisablehook = hook


def stop_repeating() -> None:
    """Repeat no signal from now on, because the command ends anyway."""
    _IS_OVER.set()


def _repeat(main_thread: int) -> None:
    handled = not_ignored(signal.SIGTERM, signal.SIGHUP)
    if handled and not _IS_OVER.is_set():
        _IS_REPETITION.set()
        signal.pthread_kill(main_thread, handled[0])


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
        """End the block when a signal arrives, and set `noted` to True.

        Use `waiting` for a block that changes nothing and may never end.
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
        again, self.noted = self.noted and not _IS_REPETITION.is_set(), True
        _IS_REPETITION.clear()
        if again or self._is_waiting:
            raise KeyboardInterrupt


class ChangeInterruption(Interruption):
    """A block of code for a change that is recorded in a journal.

    If a signal arrives before the call of `commit`, the verb ends without a change. After the call of `commit`, signals
    are ignored, and the change continues to its end. With `at_once`, the first signal before `commit` raises
    KeyboardInterrupt immediately. Without `at_once`, the first signal is only recorded, and `commit` raises
    KeyboardInterrupt. Signals are ignored until the command ends. With `more_follows`, the same command continues with
    another store: a signal during the change then raises KeyboardInterrupt at the end of the block.
    """

    def __init__(self, *, at_once: bool = True, more_follows: bool = False) -> None:
        super().__init__()
        self._at_once = at_once
        self._more_follows = more_follows
        self._is_committed = False
        self._comes_later = False

    def commit(self) -> None:
        """Begin the change: from now on, ignore signals.

        Raises KeyboardInterrupt if a signal arrived before the change.
        """
        if self.noted:
            self._at_once = False  # a repetition of the signal must not interrupt what this exception ends
            raise KeyboardInterrupt
        self._is_committed = True
        handler = self._postpone if self._more_follows else signal.SIG_IGN  # Python does not reset SIG_IGN at its end
        for number in self._before:
            signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._more_follows or not self._is_committed:
            super().__exit__(kind, error, trace)
        if kind is KeyboardInterrupt:
            remark("nothing was changed")
        elif kind is None and self._comes_later:
            raise KeyboardInterrupt

    def _postpone(self, *_: object) -> None:
        self._comes_later = True

    def _note(self, *_: object) -> None:
        super()._note()
        if self._at_once:
            raise KeyboardInterrupt
