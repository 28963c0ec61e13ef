"""A copy of a golden store that is being damaged, and the register of the kinds of damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.damage.pristine import Pristine

UNIT = 20


class Victim(NamedTuple):
    """The copy `root` of `pristine`; `others` are golden stores whose files may be mixed in."""

    root: Path
    pristine: Pristine
    others: Sequence[Pristine]

    def files(self, folder: str, pattern: str = "*") -> list[Path]:
        """Files of a folder of the store, at any depth, in their order."""
        return sorted(path for path in (self.root / folder).rglob(pattern) if path.is_file())

    @property
    def log_files(self) -> list[Path]:
        """Those that are left, with names of 20 digits."""
        return [path for path in self.files("commitlog") if path.parent == self.root / "commitlog" and is_offset(path)]

    @property
    def queue_files(self) -> list[Path]:
        """Of all queues."""
        return [path for path in self.files("consumequeue") if is_offset(path)]

    @property
    def used_queue_files(self) -> list[Path]:
        """Of all queues, those that have any unit."""
        return [path for path in self.queue_files if path.read_bytes().strip(b"\0")]

    def log_file(self, name: str) -> Path:
        """The log file of a name, whether it is still there or not."""
        return self.root / "commitlog" / name


Kind = Callable[[Victim, random.Random], None]
KINDS: dict[str, Kind] = {}


def kind(damage: Kind) -> Kind:
    """Register a kind of damage under its function's name. One that finds nothing to damage any more does nothing."""
    KINDS[damage.__name__.replace("_", "-")] = damage
    return damage


def is_offset(path: Path) -> bool:
    """Whether a file's name is one of a MappedFile."""
    return len(path.name) == 20 and path.name.isdigit()


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Bytes of a file, as far as it has any there."""
    if not path.is_file():
        return
    found = bytearray(path.read_bytes())
    data = data[: max(len(found) - at, 0)]
    found[at : at + len(data)] = data
    path.write_bytes(found)


def flip(path: Path, at: int, rng: random.Random) -> None:
    """One bit of a file's byte."""
    if path.is_file() and at < path.stat().st_size:
        with path.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def cut(path: Path, few: int, rng: random.Random) -> None:
    """A file to nothing, to a byte, to `few` bytes, or to any length that it had."""
    with path.open("r+b") as file:
        file.truncate(rng.choice((0, 1, few, rng.randrange(path.stat().st_size + 1))))


def extend(path: Path, few: int, rng: random.Random) -> None:
    """A file by a byte, by `few` bytes, or to double its length, with zeros or random bytes."""
    more = rng.choice((1, few, path.stat().st_size))
    with path.open("ab") as file:
        file.write(rng.choice((bytes(more), rng.randbytes(more))))


def used(path: Path, step: int = UNIT) -> int:
    """Up to where a file has anything but zeros, in bytes, a multiple of `step`."""
    return -(-len(path.read_bytes().rstrip(b"\0")) // step) * step
