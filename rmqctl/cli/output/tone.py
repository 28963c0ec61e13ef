"""Colours by meaning.

The text has the same information as the colour. So no information is lost with NO_COLOR, or if the output is written to
a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """The meaning of a colour. The value is the colour's name in rich and click."""

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
