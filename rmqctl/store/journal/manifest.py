"""The content of journal.json.

journal.json lists the files and folders that will be changed, and their state before the change. `journals.py` reads
journal.json, and `journal_rules.py` checks it.
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
    """The state of a file before some of its bytes were changed.

    `size` is in bytes, and `mtime_ns` in ns. `ranges` are the parts of the file that the change overwrites or cuts off.
    `pieces` are the parts of `ranges` that have non-zero bytes. The file `kept` has the bytes of all pieces, one piece
    directly after the other.

    `path` is relative to the store's root, or absolute for a log file outside the root. `kept` is relative to the
    journal's folder. If the file has no pieces, `kept` is None.
    """

    path: str
    size: Offset
    mtime_ns: TimeNs
    ranges: list[Range]
    pieces: list[Range]
    kept: str | None = None

    @property
    def kept_bytes(self) -> int:
        """Return the number of bytes in the file `kept`."""
        return sum(end - begin for begin, end in self.pieces)


class Moved(msgspec.Struct, frozen=True):
    """A path where a file or a folder was deleted, replaced or installed.

    `kept` is the path in the journal where the former content is kept. `staged` is the path in the journal where the
    new content was built. `kept` or `staged` may be None. `kept` and `staged` are relative to the journal's folder.
    `is_link` is True if the former content was a symbolic link.
    """

    path: str
    kept: str | None
    staged: str | None
    is_link: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """The content of journal.json.

    `time_ms` is in ms since 1970, and the times of `folders` are in ns. `made` lists the new folders above installed
    paths.

    `watched` has the states of the log files and the checkpoint, because a broker that uses the store changes these
    files. Files that the change touches are not in `watched`.
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
