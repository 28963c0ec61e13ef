"""Compare the messages of a split with their units, where the split is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.audit.units.unit_audit import QueueCursor, UnitAudit
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.cq_unit_compare import ABSENT, CONFIRMED, IGNORED, PLAIN
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from rmqctl.format.columns import Flags, Rows
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

IN_NO_QUEUE = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))
NO_UNITS = (0, 0)


class QueueCheck:
    """Finds the messages that their queues confirm.

    A queue confirms a message if the unit at its queue offset has its place, size and tagsCode. Messages of LMQs and of
    batch queues are never confirmed.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store
        self._builder = DispatchRequestBuilder(with_keys=False)
        self._cursors: dict[QueueKey, QueueCursor] = {}
        self._units = UnitAudit({}, self._kind_of, self._give_up)
        self._known = self._unknown_messages = 0
        self._limits = np.zeros((0, 2), np.int64)
        self._unreadable: set[QueueKey] = set()

    def check(self, columns: Columns) -> tuple[Flags, Flags]:
        """Return two flags for each message of a record run.

        They say whether the message belongs to a queue, and whether this queue confirms it.
        """
        messages = self._builder.take(columns).messages
        self._know_queues(messages)
        belongs = ~np.isin(messages["sys_flag"] & TRANSACTION_MASK, IN_NO_QUEUE)
        confirmed = np.zeros(len(messages), np.bool_)
        asked = np.flatnonzero(belongs & (messages["queue"] < self._known))
        of_known = messages[asked]
        confirmed[asked] = self._units.verdicts(of_known) == CONFIRMED
        low, high = self._limits[of_known["queue"]].T
        confirmed[asked] &= (low <= of_known["queue_offset"]) & (of_known["queue_offset"] < high)
        return belongs, confirmed

    def _know_queues(self, messages: Rows) -> None:
        """Open new queues, if enough messages need them.

        Each time, the work grows with the number of all queues. Messages of queues that are not open are not confirmed.
        """
        keys = self._builder.keys
        self._unknown_messages += int(np.count_nonzero(messages["queue"] >= self._known))
        if self._known == len(keys) or self._unknown_messages < len(keys):
            return
        limits = [self._open(key) for key in keys[self._known :]]
        self._limits = np.concatenate((self._limits, np.array(limits, np.int64)))
        self._known, self._unknown_messages = len(keys), 0
        self._units = UnitAudit(self._cursors, self._kind_of, self._give_up)  # its windows fit the number of queues
        self._units.know(list(keys))

    def _open(self, key: QueueKey) -> tuple[int, int]:
        queue = self._store.queue(*key)
        if not isinstance(queue, ConsumeQueue):
            return NO_UNITS
        try:
            limits = queue.min_and_max(self._store.commit_log.min_offset)
        except OSError:  # the table of units meets the same queue, and reports it
            return NO_UNITS
        self._cursors[key] = QueueCursor(queue, queue.slots_end)
        return limits

    def _kind_of(self, key: QueueKey) -> int:
        if key in self._unreadable:
            return IGNORED
        return PLAIN if key in self._cursors else ABSENT

    def _give_up(self, key: QueueKey, _: OSError) -> None:
        self._unreadable.add(key)
