"""What journal.json says: what a change changes, and what that was before.

`journals.py` reads it, `journal_rules.py` judges it.
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
    """What a file was: `size` in bytes, time in ns.

    `pieces`, those of `ranges` that are not zero, follow one another in `kept`.

    `path` as in the changes; `kept` is relative to the journal's folder, None without pieces.
    """

    path: str
    size: Offset
    mtime_ns: TimeNs
    ranges: list[Range]
    pieces: list[Range]
    kept: str | None = None

    @property
    def kept_bytes(self) -> int:
        """Return how many bytes are kept."""
        return sum(end - begin for begin, end in self.pieces)


class Moved(msgspec.Struct, frozen=True):
    """A path that was deleted or replaced.

    Where what stood there is kept, and where what was put there came from (both or one).

    `kept` and `staged` are relative to the journal's folder. `is_link`: what stood there was a symbolic link.
    """

    path: str
    kept: str | None
    staged: str | None
    is_link: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """journal.json.

    Times: `time_ms` since 1970, those of `folders` in ns; `made` are folders that were missing above what was
    installed.

    `watched`: what the change does not touch and any use of the store does.
    """

    verb: str
    summary: str
    time_ms: TimeMs
    changes: list[dict[str, Any]]
    files: list[PreImage]
    moved: list[Moved]
    made: list[str]
    folders: dict[str, TimeNs]
    watched: FileStates

    @property
    def touched(self) -> list[str]:
        """Return every path that the change touches."""
        return [file.path for file in self.files] + [moved.path for moved in self.moved]
