"""What a repair does to an existing store, as a list of frozen changes.

Shown first, then carried out through a `Journal`. Paths are relative to the store's root
(`commitlog/00000000000000000000`), or absolute for a commit log that lies elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Write:
    """Overwrite bytes of an existing file.

    Its length and its mtime stay. `offset` is the place in the file.
    """

    path: str
    offset: int
    data: bytes

    @property
    def size(self) -> int:
        """Return the size of the data in bytes."""
        return len(self.data)

    def describe(self) -> str:
        """Return one line for people."""
        return f"write {self.size} bytes at byte {self.offset} of {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change with names of JSON; not its bytes."""
        return {"action": "write", "path": self.path, "fileOffset": self.offset, "bytes": self.size}


@dataclass(frozen=True)
class Zero:
    """Zero the bytes [begin, end) of an existing file; its length and its mtime stay."""

    path: str
    begin: int
    end: int

    def describe(self) -> str:
        """Return one line for people."""
        return f"zero bytes {self.begin} to {self.end} of {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change with names of JSON."""
        return {"action": "zero", "path": self.path, "fileOffset": self.begin, "bytes": self.end - self.begin}


@dataclass(frozen=True)
class Resize:
    """Cut an existing file to `size` bytes, or extend it by zeros.

    Its mtime stays.
    """

    path: str
    size: int

    def describe(self) -> str:
        """Return one line for people."""
        return f"make {self.path} {self.size} bytes long"

    def to_json(self) -> dict[str, Any]:
        """Return the change with names of JSON."""
        return {"action": "resize", "path": self.path, "bytes": self.size}


@dataclass(frozen=True)
class Delete:
    """Take a file or a whole folder away, into the journal."""

    path: str

    def describe(self) -> str:
        """Return one line for people."""
        return f"delete {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change with names of JSON."""
        return {"action": "delete", "path": self.path}


@dataclass(frozen=True)
class Install:
    """Put a file or a folder, built in the journal's `staging`, in its place.

    What stood there goes into the journal.
    """

    path: str
    staged: Path

    def describe(self) -> str:
        """Return one line for people."""
        return f"install {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change with names of JSON."""
        return {"action": "install", "path": self.path}


class BlockWrite(Protocol):
    """Overwrite `size` bytes at `offset` of a file by `data`, which is made when it is asked for.

    Blocks of placeholders.
    """

    @property
    def path(self) -> str: ...  # noqa: D102 -- as in Write

    @property
    def offset(self) -> int: ...  # noqa: D102

    @property
    def size(self) -> int: ...  # noqa: D102

    @property
    def data(self) -> bytes: ...  # noqa: D102

    def describe(self) -> str: ...  # noqa: D102

    def to_json(self) -> dict[str, Any]: ...  # noqa: D102


InPlace = Write | BlockWrite | Zero | Resize
Change = Write | BlockWrite | Zero | Resize | Delete | Install
