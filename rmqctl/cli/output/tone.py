"""The colours of the output, by meaning.

A colour only repeats what the text says. Output without colours, for example with NO_COLOR or in a file, loses no
information.
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
