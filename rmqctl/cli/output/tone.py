"""The colours of the output, by meaning.

The text itself says what a colour means. Therefore output without colours loses no information, for example with
NO_COLOR or in a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """The meaning of a colour. The value is the name of the colour in rich and click."""

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
