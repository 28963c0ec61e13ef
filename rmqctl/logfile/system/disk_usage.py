"""The regular files below folders, with the space that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.system.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage


class FileUsage(NamedTuple):
    """The length of a file and its space on the disk, in bytes."""

    path: Path
    size: int
    allocated: int


def usage_below(storage: Storage, folders: Iterable[Path], on_error: Callable[[OSError], None]) -> Iterator[FileUsage]:
    """Yield the regular files below `folders`, each once, as du(1) counts them.

    A file with several names, or below several of the folders, is yielded by its first path. Links are followed as
    `storage` follows them. What cannot be read is given to `on_error`.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [*folders][::-1]
    while waiting:
        path = waiting.pop()
        try:
            entry = storage.entry(path)
            if entry.kind not in (Kind.FILE, Kind.DIRECTORY):
                continue
            details = storage.details(path, follow=True)
            place = details["device"], details["inode"]
            if place in seen:
                continue
            seen.add(place)
            if entry.kind is Kind.DIRECTORY:
                waiting += [path / name for name in reversed(storage.names(path))]
            else:
                yield FileUsage(path, entry.size, entry.allocated)
        except FileNotFoundError:  # a live broker deletes files
            continue
        except OSError as error:
            on_error(error)
