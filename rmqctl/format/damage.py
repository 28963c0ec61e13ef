"""What is wrong with a place in the commit log: data, not an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqctl.format.message import Message


class Damage(NamedTuple):
    """Bytes that are not what the format says.

    `physical_offset` and `size` (bytes) are the damaged range; a size of 0 is a place without an extent.
    `message` is what the record says of itself where its frame is whole and only a checksum or its offset is wrong.
    `path` names the file where the offset alone does not.
    """

    code: str
    physical_offset: int
    size: int
    detail: str
    message: Message | None = None
    path: str = ""

    @property
    def end(self) -> int:
        """First physical offset behind the damage."""
        return self.physical_offset + self.size

    @property
    def message_in_its_place(self) -> Message | None:
        """The message, where it is whole enough to tell its place in a queue: it says itself that it belongs here."""
        found = self.message
        return found if found is not None and found.stored_physical_offset == self.physical_offset else None
