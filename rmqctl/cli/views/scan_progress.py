"""The progress of a scan, for every verb that scans the log."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqctl.cli.output.render import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


@contextmanager
def scan_progress(store: ReadOnlyStore, mode: str, what: str, total: int | None = None) -> Iterator[None]:
    """Show the progress of a scan of `total` bytes (None: the whole log) on stderr.

    `mode` (auto, json, none) is the form of the progress.
    """
    with progress(mode, store.commit_log.size if total is None else total, what) as advance:
        store.commit_log.on_progress = advance
        yield
