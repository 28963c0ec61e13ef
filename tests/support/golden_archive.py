"""The archives of golden stores, read once a process: what they hold is written out for each test that asks, with zeros
as holes.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

BLOCK = 65536
NOTHING = bytes(BLOCK)
WRITABLE_BY_OTHERS = 0o022


class ArchivedFile(NamedTuple):
    """A file of an archive: its path there, what chmod and utime take, and its blocks that are not all zeros, by their
    offsets.
    """

    path: str
    mode: int
    mtime: float
    size: int
    blocks: list[tuple[int, bytes]]


class Archive(NamedTuple):
    """What an archive holds: the folders, each after the one that it is in, with their times, and the files."""

    folders: list[tuple[str, float]]
    files: list[ArchivedFile]


def write_archive(path: Path, into: Path) -> None:
    """Write what the archive at `path` holds below the folder `into`."""
    found = _read_archive(path)
    for name, _ in found.folders:
        (into / name).mkdir(parents=True, exist_ok=True)
    for file in found.files:
        _write(file, f"{into}/{file.path}")
    for name, mtime in reversed(found.folders):
        os.utime(into / name, (mtime, mtime))


@cache
def _read_archive(path: Path) -> Archive:
    folders, files = [], []
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isdir():
                folders.append((member.name, member.mtime))
            else:
                files.append(
                    ArchivedFile(
                        member.name, member.mode & ~WRITABLE_BY_OTHERS, member.mtime, member.size, _blocks(tar, member)
                    )
                )
    return Archive(sorted(folders), files)


def _blocks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> list[tuple[int, bytes]]:
    """Return the blocks of a file that are not all zeros. An extension's files of 50 MB have nearly none."""
    file = tar.extractfile(member)
    assert file is not None, f"{member.name} is no file"
    blocks = ((at, file.read(BLOCK)) for at in range(0, member.size, BLOCK))
    return [(at, block) for at, block in blocks if block != NOTHING[: len(block)]]


def _write(file: ArchivedFile, path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for at, block in file.blocks:
            os.pwrite(descriptor, block, at)
        os.ftruncate(descriptor, file.size)
        os.fchmod(descriptor, file.mode)
        os.utime(descriptor, (file.mtime, file.mtime))
    finally:
        os.close(descriptor)


def blocks_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file that are not all zeros, each with its offset; holes are not read."""
    with path.open("rb", buffering=0) as file:
        at, size = 0, os.fstat(file.fileno()).st_size
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:  # ENXIO: only a hole is left
                return
            block = os.pread(file.fileno(), BLOCK, at)
            if block != NOTHING[: len(block)]:
                yield at, block
            at += BLOCK
