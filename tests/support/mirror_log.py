"""The bytes of a store's log."""

from __future__ import annotations

from pathlib import Path

from rmqctl.store.read.read_only_store import ReadOnlyStore


def log_bytes(root: Path) -> bytes:
    """The log from its first byte to its end."""
    log = ReadOnlyStore(root).commit_log
    return b"".join(file.read(0, file.size) for file in log.queue.files)[: log.end()[0] - log.min_offset]


def log_file_bytes(root: Path) -> bytes:
    """The log's files, to the last zero behind its end."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
