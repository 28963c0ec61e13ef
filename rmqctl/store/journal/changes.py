"""The changes that a repair makes to an existing store.

They are frozen objects in a list that is first shown to the user, and then carried out by a `Journal`. Paths are
relative to the store's root (`commitlog/00000000000000000000`), or absolute for a commit log outside the root.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Write:
    """Overwrites bytes of an existing file, at the position `offset`.

    The file keeps its length and its mtime.
    """

    path: str
    offset: int
    data: bytes

    @property
    def size(self) -> int:
        """Return the size of the data in bytes."""
        return len(self.data)

    def describe(self) -> str:
        """Return the change in one line."""
        return f"write {self.size} bytes at byte {self.offset} of {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict for JSON, without the bytes to write."""
        return {"action": "write", "path": self.path, "fileOffset": self.offset, "bytes": self.size}


@dataclass(frozen=True, slots=True)
class Zero:
    """Sets the bytes [begin, end) of an existing file to zero.

    The file keeps its length and its mtime.
    """

    path: str
    begin: int
    end: int

    def describe(self) -> str:
        """Return the change in one line."""
        return f"zero bytes {self.begin} to {self.end} of {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict for JSON."""
        return {"action": "zero", "path": self.path, "fileOffset": self.begin, "bytes": self.end - self.begin}


@dataclass(frozen=True, slots=True)
class Resize:
    """Cuts or extends an existing file to `size` bytes.

    New bytes are zeros. The file keeps its mtime.
    """

    path: str
    size: int

    def describe(self) -> str:
        """Return the change in one line."""
        return f"make {self.path} {self.size} bytes long"

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict for JSON."""
        return {"action": "resize", "path": self.path, "bytes": self.size}


@dataclass(frozen=True, slots=True)
class Delete:
    """Moves a file or a whole folder into the journal."""

    path: str

    def describe(self) -> str:
        """Return the change in one line."""
        return f"delete {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict for JSON."""
        return {"action": "delete", "path": self.path}


@dataclass(frozen=True, slots=True)
class Install:
    """Installs a new file or a new folder at a path.

    It was built in the journal's folder `staging`, as `name`. What is at the path is moved into the journal.
    """

    path: str
    staging: Path
    name: str

    @property
    def staged(self) -> Path:
        """Return where the new file or folder was built."""
        return self.staging / self.name

    def describe(self) -> str:
        """Return the change in one line."""
        return f"install {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as a dict for JSON."""
        return {"action": "install", "path": self.path}


class BlockWrite(Protocol):
    """Overwrites `size` bytes at `offset` of a file with `data`: placeholders.

    `data` is computed when it is read.
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
