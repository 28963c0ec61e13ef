"""Plan a change of the checkpoint fields that an operator has named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.errors import Unreadable
from rmqctl.format.checkpoint import CHECKPOINT, CHECKPOINT_FILE_SIZE, Checkpoint
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import CHECKPOINT as CHECKPOINT_NAME
from rmqctl.store.journal.changes import Install, Resize, Write

if TYPE_CHECKING:
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NEW_FILE = "checkpoint"  # in the journal's staging


@dataclass(frozen=True)
class CheckpointPlan:
    """The checkpoint `before` and `after` the change (ms since 1970, bytes)."""

    before: Checkpoint
    after: Checkpoint
    size: int | None  # of the checkpoint file in bytes; None: it does not exist

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint file is missing, or too short for its fields."""
        return self.size is None or self.size < CHECKPOINT.size

    @property
    def is_whole(self) -> bool:
        """Whether the checkpoint file has the length that brokers use."""
        return self.size == CHECKPOINT_FILE_SIZE

    @property
    def summary(self) -> str:
        """Name the changed fields, in one line."""
        pairs = zip(CHECKPOINT.fields, self.before, self.after, strict=True)
        return ", ".join(f"{field.name} = {new}" for field, old, new in pairs if old != new)

    def changes(self, staging: Path) -> list[Change]:
        """Return the changes to the checkpoint file's fields and length.

        Only fields with a new value are written, and the bytes after the fields stay. If `is_new`, the new file from
        `build` replaces the checkpoint file.
        """
        if self.is_new:
            return [Install(CHECKPOINT_NAME, staging, NEW_FILE)]
        changes: list[Change] = [] if self.is_whole else [Resize(CHECKPOINT_NAME, CHECKPOINT_FILE_SIZE)]
        for field, old, new in zip(CHECKPOINT.fields, self.before, self.after, strict=True):
            if old != new:
                raw = new.to_bytes(8, "big", signed=True)
                changes.append(Write(CHECKPOINT_NAME, CHECKPOINT.offset(field.name), raw))
        return changes

    def build(self, storage: WritableStorage, staging: Path) -> list[Change]:
        """Return `changes`; if `is_new`, create the file in `staging` first.

        Raises OSError.
        """
        if self.is_new:
            data = CHECKPOINT.struct.pack(*self.after)
            storage.replace_file(staging / NEW_FILE, data.ljust(CHECKPOINT_FILE_SIZE, b"\0"))
        return self.changes(staging)


def plan_checkpoint(store: ReadOnlyStore, fields: dict[str, Any]) -> CheckpointPlan:
    """Return the plan that sets `fields` (names of Checkpoint's fields).

    Raises OSError, and Unreadable if the checkpoint is not a file.
    """
    path = store.path.part(CHECKPOINT_NAME)
    entry = store.storage.entry(path)
    if entry.kind not in (Kind.FILE, Kind.MISSING):
        raise Unreadable(f"{entry.kind.value}, not a file of the store", path=str(path))
    before = store.checkpoint() or Checkpoint(0, 0, 0, 0, 0, 0)
    return CheckpointPlan(before, before._replace(**fields), entry.size if entry.kind is Kind.FILE else None)
