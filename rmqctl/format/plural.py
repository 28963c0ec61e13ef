"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`: a number and its noun, of which the plural is regular."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
