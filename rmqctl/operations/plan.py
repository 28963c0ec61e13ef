"""The plan of a repair, which never changes after it is created.

`--dry-run` shows it, and `rmqctl.operations.repair.execute` executes exactly this plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.operations.placeholder.blocks import PlaceholderBlocks
from rmqctl.store.recovery.data_loss import DataLoss, QueueOutcome
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import BlockWrite, Change
    from rmqctl.store.read.read_only_store import Fingerprint
    from rmqctl.store.timer.timer_message import TimerMessage


class RebuildQueue(NamedTuple):
    """A step that rebuilds a consume queue from the commit log."""

    topic: str
    queue_id: int

    def describe(self) -> str:
        """Return one line of text for people."""
        return f"rebuild queue {self.topic}/{self.queue_id}"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return {"action": "rebuild-queue", "topic": self.topic, "queueId": self.queue_id}


class RebuildIndex(NamedTuple):
    """A step that rebuilds the index from the commit log."""

    def describe(self) -> str:
        """Return one line of text for people."""
        return "rebuild the index"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return {"action": "rebuild-index"}


class RebuildTimers(NamedTuple):
    """A step that writes the timer's files anew, for the messages that wait."""

    timers: tuple[TimerMessage, ...]  # in the order of the log
    last: TimerMessage | None  # the last message of the timer's queue
    queue_end: int  # of the timer's queue
    removes_rows: bool = False  # of rocksdbstore/, which has nothing else

    def describe(self) -> str:
        """Return one line of text for people."""
        removed = ", and remove its database" if self.removes_rows else ""
        return f"rebuild the timer's files, for {counted(len(self.timers), 'waiting message')}{removed}"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return {"action": "rebuild-timers", "messages": len(self.timers), "removesDatabase": self.removes_rows}


class RefillQueues(NamedTuple):
    """A step that removes the queues in RocksDB, for the next start to fill."""

    def describe(self) -> str:
        """Return one line of text for people."""
        return "remove the queues' database and the checkpoint, and create abort, for the next start to fill the queues"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return {"action": "refill-queues"}


class SetCheckpoint(NamedTuple):
    """A step that writes `values` into the file `checkpoint`."""

    values: Checkpoint
    is_wrong: bool = False  # else a plan with only this step is dropped

    def describe(self) -> str:
        """Return one line of text for people."""
        return "set the checkpoint to the log's last message"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return {
            "action": "set-checkpoint",
            "physicMsgTimestamp": self.values.physic_msg_timestamp,
            "logicsMsgTimestamp": self.values.logics_msg_timestamp,
            "indexMsgTimestamp": self.values.index_msg_timestamp,
        }


class AddLogFile(NamedTuple):
    """A step that adds a missing log file, with `blocks` and zeros."""

    path: str
    size: int
    like: str  # the file that gives the new one its mtime
    blocks: tuple[BlockWrite, ...]

    def describe(self) -> str:
        """Return one line of text for people."""
        return f"add {self.path}, {self.size} bytes"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return {"action": "add-file", "path": self.path, "bytes": self.size}


class Step(NamedTuple):
    """One action of a repair plan, and its reason."""

    action: Change | RebuildQueue | RebuildIndex | RebuildTimers | RefillQueues | SetCheckpoint | AddLogFile
    why: str

    def describe(self) -> str:
        """Return one line of text for people."""
        return f"{self.action.describe()}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """Return the step as a dict for JSON."""
        return self.action.to_json() | {"why": self.why}


@dataclass(frozen=True)
class RepairPlan:
    """The plan of a repair, and the store after it."""

    min_phy_offset: int  # of the log after the repair
    max_phy_offset: int  # the first physical offset behind that log
    end_reason: str | None  # why it ends there; None if no message follows, or if the operator chose the end
    records: int | None  # messages of that log; None: not counted
    lost: DataLoss
    queues: tuple[QueueOutcome, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    fingerprint: Fingerprint = ()  # of the store's files when the plan was made
    placeholders: PlaceholderBlocks = field(default_factory=PlaceholderBlocks)  # they replace damaged records
    leaves: Mapping[str, int] = field(default_factory=dict)  # by code, the findings of `verify` after the repair
    profile: Profile | None = None  # of the brokers for which the index is rebuilt; None: the store shows it
    start_problem: str | None = None  # why a broker would not start after the repair
    strays: frozenset[QueueKey] = frozenset()  # that a record names because of a flipped bit, and that are not created
    placed: frozenset[QueueKey] = frozenset()  # disordered queues: a rebuild that knows them reads the log once

    @property
    def queues_to_rebuild(self) -> frozenset[QueueKey]:
        """The queues that the plan rebuilds."""
        return queues_to_rebuild(self.steps)

    @property
    def rebuilds_index(self) -> bool:
        """Whether the plan rebuilds the index."""
        return any(isinstance(step.action, RebuildIndex) for step in self.steps)


def queues_to_rebuild(steps: Iterable[Step]) -> frozenset[QueueKey]:
    """Return the queues that the steps rebuild."""
    actions = (step.action for step in steps)
    return frozenset((action.topic, action.queue_id) for action in actions if isinstance(action, RebuildQueue))
