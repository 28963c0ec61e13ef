"""All that is in a folder, for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.storage import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.storage import Stamp, Storage


def tree_of(storage: Storage, path: Path) -> Iterator[tuple[Path, Stamp]]:
    """`path` and all that is below it, what a folder holds before the folder; nothing where nothing is. Raises OSError."""
    waiting: list[tuple[Path, Stamp | None]] = [(path, None)]  # no recursion: a store may nest its folders deeper than Python calls itself
    while waiting:
        found, listed = waiting.pop()
        stamp = listed or storage.stamp(found)
        if stamp is None:
            continue
        if listed is None and stamp.kind is Kind.DIRECTORY:
            waiting.append((found, stamp))
            waiting += [(found / name, None) for name in reversed(storage.names(found))]
        else:
            yield found, stamp
