from __future__ import annotations

import pytest

from rmqctl.errors import BadRequest
from rmqctl.remoting.address import parse_address


@pytest.mark.parametrize("text", ["10.1.2.3:10911", "broker-a.example:1", "[2001:db8::1]:65535"])
def test_an_address_prints_as_it_was_written(text: str) -> None:
    assert str(parse_address(text)) == text


WRONG = ["", "10.1.2.3", ":10911", "a:", "a:0", "a:65536", "a:-1", "a:x", "2001:db8::1:10911", "a:1²", "[]:1"]
WRONG += ["\x1b:1", "a..b:1", "x" * 64 + ":1", "a." * 200 + "b:1"]


@pytest.mark.parametrize("text", WRONG)
def test_another_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest, match=r"HOST:PORT, for example 10\.1\.2\.3:10911"):
        parse_address(text)
