"""Colours by meaning.

A colour never stands alone: the text says the same. So nothing is lost with NO_COLOR, or where the output is a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """What a colour means; the value is the colour's name, of rich and of click."""

    BAD = "red"
    ATTENTION = "yellow"
    GOOD = "green"
    ASKED = "cyan"


LABELS = {"damage": Tone.BAD, "rmqctl": Tone.BAD, "note": Tone.ATTENTION}


@dataclass(frozen=True)
class Toned:
    """A cell of a table that has a colour on a terminal."""

    text: str
    tone: Tone

    def __str__(self) -> str:
        return self.text
