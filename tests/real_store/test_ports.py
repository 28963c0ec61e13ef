from __future__ import annotations

import random
import socket
from contextlib import ExitStack

import pytest

from tests.real_store.ports import BLOCK, FIRST_PORT, held_port


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([FIRST_PORT, FIRST_PORT, FIRST_PORT + BLOCK, FIRST_PORT])
    monkeypatch.setattr(random, "randrange", lambda *_: next(drawn))
    monkeypatch.setattr("tests.real_store.ports._is_free", lambda port: True)
    with held_port() as first, held_port() as second:
        assert (first, second) == (FIRST_PORT + 2, FIRST_PORT + BLOCK + 2)
    with held_port() as again:
        assert again == first


def test_a_port_that_somebody_uses_is_not_given() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(held_port())
        for near in range(port - 2, port + 2):
            probe = stack.enter_context(socket.socket())
            probe.bind(("", near))


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.real_store.ports._is_free", lambda port: False)
    with pytest.raises(RuntimeError, match="no free ports"), held_port():
        pass
