"""The content of journal.json.

It lists the files and folders that will be changed, and their state before. `journals.py` reads it, and
`journal_rules.py` checks it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
TimeNs = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Range = tuple[Offset, Offset]  # [begin, end), bytes
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]  # up to the year 9999
FileStates = dict[str, tuple[int, int] | None]  # path -> size in bytes and mtime in ns; None: there is nothing


class PreImage(msgspec.Struct, frozen=True):
    """The state of a file before some of its bytes were changed."""

    path: str  # relative to the store's root, or absolute for a log file outside the root
    size: Offset  # bytes
    mtime_ns: TimeNs
    ranges: list[Range]  # the parts of the file that the change overwrites or cuts off
    pieces: list[Range]  # the parts of `ranges` that have non-zero bytes
    kept: str | None = None
    """File with the bytes of all pieces, one after the other, in the journal's folder; None without pieces."""

    @property
    def kept_bytes(self) -> int:
        """Return the number of bytes in the file `kept`."""
        return sum(end - begin for begin, end in self.pieces)


class Moved(msgspec.Struct, frozen=True):
    """A path where a file or a folder was deleted, replaced or installed.

    `kept` and `staged` are relative to the journal's folder.
    """

    path: str
    kept: str | None  # where the former content is kept, or None
    staged: str | None  # where the new content was built, or None
    is_link: bool = False  # the former content was a symbolic link


class Manifest(msgspec.Struct, frozen=True):
    """The content of journal.json."""

    verb: str
    summary: str
    time_ms: TimeMs  # since 1970
    changes: list[dict[str, Any]]
    files: list[PreImage]
    moved: list[Moved]
    made: list[str]  # new folders above installed paths
    folders: dict[str, TimeNs]  # with their times in ns
    watched: FileStates  # log files and checkpoint, which a broker that uses the store changes; without touched files

    @property
    def touched(self) -> list[str]:
        """Return every path that the change touches."""
        return [file.path for file in self.files] + [moved.path for moved in self.moved]
