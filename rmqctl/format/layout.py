"""Fixed layouts of fields, with their structs, offsets, sizes and tables."""

from __future__ import annotations

import struct
from functools import cached_property
from typing import NamedTuple

BIG_ENDIAN = ">"


class Field(NamedTuple):
    """One field of a layout."""

    name: str  # in RocketMQ
    code: str  # struct code: `i` (4 bytes), `q` (8 bytes), `h` (2 bytes), `8s` (8 raw bytes)
    remark: str = ""

    @property
    def size(self) -> int:
        """Return the number of bytes of the field on disk."""
        return struct.calcsize(BIG_ENDIAN + self.code)


class Layout:
    """Successive fields, big-endian, without padding.

    >>> unit = Layout("unit", (Field("physicalOffset", "q"), Field("size", "i")))
    >>> unit.size, unit.offset("size")
    (12, 8)
    """

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields

    @cached_property
    def struct(self) -> struct.Struct:
        """Return the compiled struct of all fields."""
        return struct.Struct(BIG_ENDIAN + "".join(field.code for field in self.fields))

    @cached_property
    def size(self) -> int:
        """Return the number of bytes of the whole layout."""
        return self.struct.size

    def offset(self, name: str) -> int:
        """Return the offset in bytes of the field `name`, or raise KeyError."""
        at = 0
        for field in self.fields:
            if field.name == name:
                return at
            at += field.size
        raise KeyError(name)

    def table(self) -> str:
        """Return the layout as a table: offset, bytes, field and remark."""
        rows = []
        at = 0
        for field in self.fields:
            rows.append(f"{at:>4}  {field.size:>3}  {field.name:<28}  {field.remark}".rstrip())
            at += field.size
        return "\n".join(rows)
