"""Signals while a JVM starts or ends, without one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from rmqctl.spark.session.jvm_signals import is_interruption, signals_held


def refused(first: type[BaseException]) -> BaseException:
    """An error in ending what another had ended."""
    try:
        try:
            raise first
        finally:
            raise ConnectionRefusedError
    except ConnectionRefusedError as error:
        return error


def test_what_an_interruption_brings_about() -> None:
    assert is_interruption(KeyboardInterrupt())
    assert is_interruption(refused(KeyboardInterrupt))
    assert not is_interruption(refused(ValueError))


@pytest.fixture
def heard() -> Any:
    """The signals that came through, each as KeyboardInterrupt."""
    numbers: list[int] = []

    def interrupt(number: int, _: Any) -> None:
        numbers.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    return numbers


def start(*steps: Callable[[], Any]) -> None:
    with signals_held():
        for step in steps:
            step()


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def fail() -> None:
    raise RuntimeError("the JVM has ended, too")


def test_a_signal_comes_behind_the_start(heard: list[int]) -> None:
    meanwhile: list[list[int]] = []
    with pytest.raises(KeyboardInterrupt):
        start(terminate, lambda: meanwhile.append(list(heard)))
    assert (meanwhile, heard) == ([[]], [signal.SIGTERM])


def test_also_where_the_start_fails_by_it(heard: list[int]) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(terminate, fail)
    assert heard == [signal.SIGTERM]


def test_a_second_one_is_held_too(heard: list[int]) -> None:
    """A JVM whose start is not waited for would run on without anybody who can end it."""
    meanwhile: list[list[int]] = []
    with pytest.raises(KeyboardInterrupt):
        start(terminate, terminate, lambda: meanwhile.append(list(heard)))
    assert (meanwhile, heard) == ([[]], [signal.SIGTERM])


def test_what_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals_held():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
