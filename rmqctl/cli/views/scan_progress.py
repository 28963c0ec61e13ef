"""Progress of scans of the log, in every verb that makes one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqctl.cli.output.render import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


@contextmanager
def scan_progress(store: ReadOnlyStore, mode: str, what: str, total: int | None = None) -> Iterator[None]:
    """Show what scans of the store's log did, of `total` bytes (None: all of it), as `mode` (auto, json, none) asks."""
    with progress(mode, store.commit_log.size if total is None else total, what) as advance:
        store.commit_log.on_progress = advance
        yield
