"""Keep the old bytes of a file before a change, and restore them.

They are kept in a file of the journal, without blocks of zeros: an undo makes zeros of what was not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.file_tree import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.manifest import PreImage, Range

ZERO_BLOCK_SIZE = 4096
_ZEROS = bytes(BLOCK_SIZE)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Join ranges that touch or overlap, in order, and drop empty ones."""
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def nonzero_pieces(storage: Storage, descriptor: int, begin: int, end: int) -> Iterator[Range]:
    """Yield the ranges in [begin, end) whose blocks have non-zero bytes.

    Neighbouring blocks are joined. Raises OSError.
    """
    blocks = ((at, min(at + ZERO_BLOCK_SIZE, end)) for at in _nonzero_blocks(storage, descriptor, begin, end))
    current: Range | None = None
    for block in blocks:
        if current is not None and current[1] == block[0]:
            current = (current[0], block[1])
            continue
        if current is not None:
            yield current
        current = block
    if current is not None:
        yield current


def _nonzero_blocks(storage: Storage, descriptor: int, begin: int, end: int) -> Iterator[int]:
    """Yield where each block with a non-zero byte begins; the first is at `begin`."""
    position: int | None = begin
    while position is not None and position < end:
        data = storage.read(descriptor, position, min(BLOCK_SIZE, end - position))
        if not data:
            return
        if data != _ZEROS[: len(data)]:
            for at in range(0, len(data), ZERO_BLOCK_SIZE):
                block = data[at : at + ZERO_BLOCK_SIZE]
                if block != _ZEROS[: len(block)]:
                    yield position + at
        after = position + len(data)
        data_at = storage.next_data(descriptor, after)
        # a block always begins at a multiple of the block size after `begin`
        position = None if data_at is None else max(after, data_at - (data_at - begin) % ZERO_BLOCK_SIZE)


def keep(storage: WritableStorage, path: Path, image: PreImage, kept: Path) -> None:
    """Copy the pieces of the file at `path` to `kept`, and flush `kept` to disk.

    The caller must sync the folder of `kept`. Raises OSError.
    """
    source = storage.open(path)
    try:
        copy = storage.make_file(kept)
        try:
            _copy(storage, source, image.pieces, copy, of_kept=False)
            storage.sync(copy)
        finally:
            storage.close(copy)
    finally:
        storage.close(source)


def put_back(storage: WritableStorage, path: Path, image: PreImage, kept: Path | None) -> None:
    """Restore a file's length, its old bytes and its mtime; flush it to disk.

    After an error, the call can be repeated. Raises OSError.
    """
    descriptor = storage.open_for_writing(path)
    try:
        storage.resize(descriptor, image.size)
        for begin, end in _gaps(image):
            zero(storage, descriptor, begin, end)
        if kept is not None:
            copy = storage.open(kept)
            try:
                _copy(storage, copy, image.pieces, descriptor, of_kept=True)
            finally:
                storage.close(copy)
    finally:
        storage.close(descriptor)
    storage.set_mtime(path, image.mtime_ns)
    storage.sync_file(path)


def is_as_it_was(storage: Storage, path: Path, image: PreImage, kept: Path | None) -> bool:
    """Return whether a file has its former length, bytes and mtime.

    Raises OSError.
    """
    stamp = storage.stamp(path)
    if stamp is None or (stamp.size, stamp.mtime_ns) != (image.size, image.mtime_ns):
        return False
    descriptor = storage.open(path)
    try:
        if any(True for gap in _gaps(image) for _ in nonzero_pieces(storage, descriptor, *gap)):
            return False
        return kept is None or _has_kept(storage, descriptor, image.pieces, kept)
    finally:
        storage.close(descriptor)


def _has_kept(storage: Storage, descriptor: int, pieces: list[Range], kept: Path) -> bool:
    copy = storage.open(kept)
    try:
        return all(
            storage.read(descriptor, at, size) == storage.read(copy, kept_at, size)
            for at, kept_at, size in _parts(pieces)
        )
    finally:
        storage.close(copy)


def zero(storage: WritableStorage, descriptor: int, begin: int, end: int) -> None:
    """Set the bytes [begin, end) of a file to zero.

    Blocks of zeros are not written again. Raises OSError.
    """
    for first, last in list(nonzero_pieces(storage, descriptor, begin, end)):
        for at in range(first, last, BLOCK_SIZE):
            storage.write(descriptor, at, _ZEROS[: min(BLOCK_SIZE, last - at)])


def _gaps(image: PreImage) -> Iterator[Range]:
    """Yield the parts of `ranges` outside all `pieces`: these bytes were zeros."""
    pieces = iter([*image.pieces, (image.size, image.size)])
    piece = next(pieces)
    for begin, end in image.ranges:
        at = begin
        while piece[0] < end:
            if at < piece[0]:
                yield at, piece[0]
            at = piece[1]
            piece = next(pieces)
        if at < end:
            yield at, end


def _copy(storage: WritableStorage, source: int, pieces: list[Range], target: int, *, of_kept: bool) -> None:
    """Copy the pieces to the file of kept bytes; with `of_kept`, copy them back."""
    for at, kept_at, size in _parts(pieces):
        data = storage.read(source, kept_at if of_kept else at, size)
        if len(data) != size:
            raise OSError(5, "a file is shorter than it was a moment ago")
        storage.write(target, at if of_kept else kept_at, data)


def _parts(pieces: list[Range]) -> Iterator[tuple[int, int, int]]:
    """Yield (position in the file, position in kept bytes, size) of each part.

    A part has at most BLOCK_SIZE bytes.
    """
    kept_at = 0
    for begin, end in pieces:
        for at in range(begin, end, BLOCK_SIZE):
            size = min(BLOCK_SIZE, end - at)
            yield at, kept_at, size
            kept_at += size
