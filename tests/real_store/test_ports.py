from __future__ import annotations

import random
import socket

import pytest

from tests.real_store.ports import ABOVE, BELOW, BLOCK, FIRST_PORT, held_port


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([FIRST_PORT, FIRST_PORT, FIRST_PORT + BLOCK, FIRST_PORT])
    monkeypatch.setattr(random, "randrange", lambda *_: next(drawn))
    monkeypatch.setattr("tests.real_store.ports._is_free", lambda port: True)
    with held_port() as first, held_port() as second:
        assert (first, second) == (FIRST_PORT + BELOW, FIRST_PORT + BLOCK + BELOW)
    with held_port() as again:
        assert again == first


@pytest.mark.parametrize("near", range(-BELOW, ABOVE + 1))
def test_a_port_beside_a_used_one_is_not_given(near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_port() as used, held_port() as free:
        pass
    drawn = iter([used - BELOW, free - BELOW])
    monkeypatch.setattr(random, "randrange", lambda *_: next(drawn))
    with socket.socket() as taken:
        taken.bind(("", used + near))
        with held_port() as port:
            assert port == free


def test_no_free_port_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.real_store.ports._is_free", lambda port: False)
    with pytest.raises(RuntimeError, match="no free ports"), held_port():
        pass
