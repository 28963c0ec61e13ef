"""What a repair is going to do, frozen.

Shown by `--dry-run`, carried out exactly so by `rmqctl.operations.repair.execute`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.operations.placeholder.blocks import PlaceholderBlocks
from rmqctl.store.recovery.data_loss import DataLoss, QueueOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.format.profile import Profile
    from rmqctl.operations.placeholder.blocks import PlaceholderBlock
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import Fingerprint


class RebuildQueue(NamedTuple):
    """Make a queue anew from the log."""

    topic: str
    queue_id: int

    def describe(self) -> str:
        """Return one line for people."""
        return f"rebuild queue {self.topic}/{self.queue_id}"

    def to_json(self) -> dict[str, Any]:
        """Return the step with names of JSON."""
        return {"action": "rebuild-queue", "topic": self.topic, "queueId": self.queue_id}


class RebuildIndex(NamedTuple):
    """Make the index anew from the log."""

    def describe(self) -> str:
        """Return one line for people."""
        return "rebuild the index"

    def to_json(self) -> dict[str, Any]:
        """Return the step with names of JSON."""
        return {"action": "rebuild-index"}


class SetCheckpoint(NamedTuple):
    """Have the checkpoint say these times.

    `is_wrong`: it needs that whatever else is done.
    """

    values: Checkpoint
    is_wrong: bool = False

    def describe(self) -> str:
        """Return one line for people."""
        return "set the checkpoint to the log's last message"

    def to_json(self) -> dict[str, Any]:
        """Return the step with names of JSON."""
        return {
            "action": "set-checkpoint",
            "physicMsgTimestamp": self.values.physic_msg_timestamp,
            "logicsMsgTimestamp": self.values.logics_msg_timestamp,
            "indexMsgTimestamp": self.values.index_msg_timestamp,
        }


class AddLogFile(NamedTuple):
    """Put a file of the log where one is missing: zeros, and `placeholders`.

    It gets the mtime of the file `like`.
    """

    path: str
    size: int
    like: str
    placeholders: tuple[PlaceholderBlock, ...]

    def describe(self) -> str:
        """Return one line for people."""
        return f"add {self.path}, {self.size} bytes"

    def to_json(self) -> dict[str, Any]:
        """Return the step with names of JSON."""
        return {"action": "add-file", "path": self.path, "bytes": self.size}


@dataclass(frozen=True)
class Step:
    """One thing to do, and why.

    `findings` are what it mends, counted by their codes, where that is not certain.
    """

    action: Change | RebuildQueue | RebuildIndex | SetCheckpoint | AddLogFile
    why: str
    findings: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """Return one line for people."""
        return f"{self.action.describe()}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """Return the step with names of JSON."""
        return self.action.to_json() | {"why": self.why}


class Contested(NamedTuple):
    """Queues to be rebuilt with messages whose places are in doubt.

    They are rebuilt `rounds` times, each time judged by the last.
    """

    keys: frozenset[QueueKey] = frozenset()
    rounds: int = 1


@dataclass(frozen=True)
class RepairPlan:
    """Offsets in bytes; [min_phy_offset, max_phy_offset) is the log afterwards, with `records` messages (None.

    Not counted).

    `end_reason` says why the log ends there; None: that is where its messages end, or where it was asked to.
    `fingerprint` are the store's files as they were when it was looked at. `placeholders` take the place of damage.
    `leaves` counts, by their codes, the findings that `verify` still has afterwards.
    `profile` is that of the brokers that the index is rebuilt for; None: as the store shows.
    `start_problem` says why a broker does not start afterwards either; None: it does.
    """

    min_phy_offset: int
    max_phy_offset: int
    end_reason: str | None
    records: int | None
    lost: DataLoss
    queues: tuple[QueueOutcome, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    fingerprint: Fingerprint = ()
    placeholders: PlaceholderBlocks = field(default_factory=PlaceholderBlocks)
    leaves: Mapping[str, int] = field(default_factory=dict)
    profile: Profile | None = None
    start_problem: str | None = None
    contested: Contested = field(default_factory=Contested)

    @property
    def queues_to_rebuild(self) -> frozenset[QueueKey]:
        """Return those that are rebuilt."""
        return frozenset(
            (action.topic, action.queue_id)
            for action in (step.action for step in self.steps)
            if isinstance(action, RebuildQueue)
        )

    @property
    def rebuilds_index(self) -> bool:
        """Return whether the index is rebuilt."""
        return any(isinstance(step.action, RebuildIndex) for step in self.steps)
