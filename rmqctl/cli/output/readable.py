"""Sentences for a terminal: readable numbers, lines that end between words."""

from __future__ import annotations

import re
import textwrap

from rmqctl.text import size_text

WIDTH_MIN = 30
_COMMAND = re.compile("`[^`]*`")
_UNBROKEN = "\x00"  # stands for a blank of a command; `printable` lets none through
_COUNTED = "messages|records|units|queues|files|entries|findings"
_COUNT = re.compile(rf"(?<![\w.,/-])(\d{{4,18}})(?:( bytes\b)|(?= (?:more |good )?(?:{_COUNTED})\b))")


def readable(text: str) -> str:
    """Return a text with grouped digits in its counts, and units for its bytes.

    Offsets stay exact, since people copy them.

    >>> readable("166 messages, 67858 bytes; 2078 messages up to 763929")
    '166 messages, 66.3 KiB; 2,078 messages up to 763929'
    """
    return _COUNT.sub(lambda match: size_text(int(match[1])) if match[2] else f"{int(match[1]):,}", text)


def wrapped(text: str, width: int) -> str:
    """Return a text in lines of `width` characters.

    No line ends within a command in backquotes. A text that begins with a blank, such as a line of a diagram, stays
    as it is.
    """
    if text.startswith(" "):
        return text
    whole = _COMMAND.sub(lambda match: match[0].replace(" ", _UNBROKEN), text)
    lines = textwrap.wrap(whole, max(width, WIDTH_MIN), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_UNBROKEN, " ")
