"""Whether Spark is at a URL: who refuses, says nothing or is something else is told in one line.

A real one is asked by test_cluster.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqctl.errors import Unreadable
from rmqctl.spark.session import session
from rmqctl.spark.session.session import check_answers
from tests.support.spark_stand_ins import listener

SCHEMES = ("spark", "sc")


@contextmanager
def nobody() -> Iterator[str]:
    """HOST:PORT where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_that_never_answers(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_SECONDS", 0.1)
    with (
        listener(None) as place,
        pytest.raises(Unreadable, match=r"^\S+: no Spark answers there: not a word within 0.1 s$"),
    ):
        check_answers(f"{scheme}://{place}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_port_of_a_web_page(scheme: str) -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as place, pytest.raises(Unreadable, match="a web page is there"):
        check_answers(f"{scheme}://{place}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_that_refuses(scheme: str) -> None:
    with nobody() as place, pytest.raises(Unreadable, match="Connection refused"):
        check_answers(f"{scheme}://{place}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_that_has_an_answer(scheme: str) -> None:
    with listener(b"\0\0\0\0\0\0\0\x2a\x08") as place:
        check_answers(f"{scheme}://{place}")


def test_one_of_several_masters_is_enough() -> None:
    with nobody() as first, listener(b"\0\0\0\0\0\0\0\x2a\x08") as second:
        check_answers(f"spark://{first},{second}")


@pytest.mark.parametrize("url", ["local[2]", "yarn", "k8s://https://127.0.0.1:1"])
def test_others_are_not_asked(url: str) -> None:
    check_answers(url)


@pytest.mark.parametrize("url", ["spark://127.0.0.1:99999", "spark://", "sc://no-such-host.invalid"])
def test_no_place_at_all(url: str) -> None:
    with pytest.raises(Unreadable, match="no Spark answers there: "):
        check_answers(url)
