from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from rmqctl.cli.output.printable import printable, printable_json

FILLERS = "\u115f\u1160\u3164\uffa0\u034f\u17b4\ufe0f\U000e0100\u2800\u00a0\u2003"


def test_no_character_that_nobody_sees_is_left() -> None:
    hidden = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    for character in [*hidden, *FILLERS]:
        assert printable(character).isascii(), hex(ord(character))


@pytest.mark.parametrize("text", ["订单 0x1F", "\u3000", "é", "😀", "한글", "=1+1"])
def test_what_is_seen_stays(text: str) -> None:
    assert (printable(text), json.loads(printable_json(json.dumps(text, ensure_ascii=False)))) == (text, text)


@pytest.mark.parametrize(
    ("character", "shown", "in_json"),
    [
        ("\x1b", "\\x1b", None),
        ("\xad", "\\xad", "\\u00ad"),
        ("\ufff9", "\\ufff9", "\\ufff9"),
        ("\U000e0041", "\\U000e0041", "\\udb40\\udc41"),
        ("\udc80", "\\udc80", "\\udc80"),
    ],
)
def test_how_it_is_shown(character: str, shown: str, in_json: str | None) -> None:
    assert printable(character) == shown
    assert in_json is None or printable_json(character) == in_json
