"""The audit of the files that a broker with a controller writes (5.x)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.store.config.store_path import BROKER_IDENTITY, EPOCH_FILE
from rmqctl.store.ha.controller_files import controller_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


def audit_controller_files(store: ReadOnlyStore, log_end: int) -> Iterator[Finding]:
    """Check epochFileCheckpoint and brokerIdentity.

    The files of the log end at `log_end` (bytes).
    """
    files = controller_files(store)
    if files.epochs_problem:
        yield Finding("epochs-invalid", EPOCH_FILE, None, files.epochs_problem)
    if files.identity_problem:
        yield Finding("identity-invalid", BROKER_IDENTITY, None, files.identity_problem)
    last = files.epochs[-1] if files.epochs else None
    if last is not None and last.start_offset > log_end:
        detail = f"epoch {last.epoch} begins at {last.start_offset}, the log's files end at {log_end}"
        yield Finding("epochs-beyond-log", EPOCH_FILE, None, detail)
