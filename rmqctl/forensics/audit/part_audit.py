"""Compare a part of the log with the queues, where the part is read.

Several processes can compare parts of one log at the same time. Each confirms the units of its messages, and returns
the few messages that only `QueueCrosscheck` can judge, which needs all parts in log order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.audit.client_audit import count_rejected
from rmqctl.forensics.audit.units.unit_audit import QueueCursor, UnitAudit
from rmqctl.kernels.cq_unit_compare import ABSENT, CONFIRMED, NOT_ASKED, PLAIN, RUNS
from rmqctl.kernels.dispatch_scan import IS_PLACEHOLDER
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.file_scan import RecordRun, ScanItem, ZeroTail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import NoReturn

    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Item = ScanItem | RecordRun | ZeroTail
MESSAGES_PER_QUEUE_MIN = 16  # with fewer messages a queue, to look up the queue costs more than it saves


class RunSummary(NamedTuple):
    """The store times (ms since 1970) and the placeholders of a record run."""

    oldest: int  # the first one that is not 0, or 0
    newest: int  # the highest one
    last: int  # that of the last message
    placeholders: int  # their number

    def with_next(self, following: RunSummary) -> RunSummary:
        """Return the summary of this run and the next one together."""
        times = self.oldest or following.oldest, max(self.newest, following.newest), following.last
        return RunSummary(*times, self.placeholders + following.placeholders)


def summary_of(messages: Rows) -> RunSummary:
    """Return the summary of messages, rows of DISPATCH_COLUMNS."""
    stored = messages["store_timestamp"]
    placeholders = int(np.count_nonzero(messages["traits"] & IS_PLACEHOLDER))
    return RunSummary(int(stored[np.argmax(stored != 0)]), int(stored.max()), int(stored[-1]), placeholders)


class CheckedRun(NamedTuple):
    """A record run that was compared with the queues."""

    rest: Rows  # messages that were not confirmed, in log order, and those with the queue offset 0 (DISPATCH_COLUMNS)
    first: Rows  # the other messages that are the first of their queue in the part (DISPATCH_COLUMNS)
    confirmed: Rows  # units of the whole part (rows of RUNS), in its last record run; else empty
    summary: RunSummary

    def numbered(self, numbers: Numbers) -> CheckedRun:
        """Replace each queue number by the number that `numbers` has at its place."""
        for rows in (self.rest, self.first, self.confirmed):
            rows["queue"] = numbers[rows["queue"]]
        return self


class PartAudit:
    """Compares the messages of one part of the log with the units of their queues.

    `keys` are the queues of the part, numbered by their index. Raises OSError if a queue cannot be read.
    """

    def __init__(self, store: ReadOnlyStore, keys: Sequence[QueueKey]) -> None:
        queues = {key: queue for key in dict.fromkeys(keys) if isinstance(queue := store.queue(*key), ConsumeQueue)}
        self._keys = list(keys)
        # a slot that is not in use confirms no message, so the end of the units in use is not needed
        self._cursors = {key: QueueCursor(queue, queue.slots_end) for key, queue in queues.items()}
        self._units = UnitAudit(self._cursors, lambda key: PLAIN if key in queues else ABSENT, _raise)
        self._units.know(self._keys)
        self._is_seen = np.zeros(len(keys), np.bool_)

    def check(self, described: DispatchColumns) -> CheckedRun:
        """Compare the messages of a record run with their units, in log order."""
        messages = described.messages
        verdicts = self._units.verdicts(messages)
        asked = verdicts != NOT_ASKED
        # `QueueCrosscheck` sees whether a queue has messages before this one: then it was deleted and created again
        wanted = asked & ((verdicts != CONFIRMED) | (messages["queue_offset"] == 0))
        first = self._first_of_queues(messages, asked)
        if count_rejected(messages):  # their finding counts messages that follow each other
            wanted[:] = True
        others = messages.take(first[~wanted[first]])
        return CheckedRun(messages.compress(wanted), others, np.empty(0, RUNS), summary_of(messages))

    def confirmed(self) -> Rows:
        """Return the confirmed units of all queues (RUNS), after the last `check`."""
        self._units.finish()
        numbers = {key: number for number, key in enumerate(self._keys)}
        runs = [(numbers[key], *run) for key, cursor in self._cursors.items() for run in cursor.confirmed()]
        return np.array(runs, RUNS)

    def _first_of_queues(self, messages: Rows, asked: Flags) -> Numbers:
        new = np.flatnonzero(asked & ~self._is_seen[messages["queue"]])
        numbers, at = np.unique(messages["queue"][new], return_index=True)
        self._is_seen[numbers] = True
        return new[at]


def check_part(store: ReadOnlyStore, keys: Sequence[QueueKey], items: Sequence[Item]) -> list[Item]:
    """Compare the record runs of a part with the queues, and return the items.

    The runs have DispatchColumns before, and CheckedRun after. Nothing is compared if the part has few messages for
    each queue, or if a queue cannot be read: the DispatchColumns then stay, without hashes.
    """
    messages = sum(item.messages for item in items if isinstance(item, RecordRun))
    if messages < MESSAGES_PER_QUEUE_MIN * len(keys):
        return [_without_hashes(item) for item in items]
    try:
        audit = PartAudit(store, keys)
        done = [*_checked(audit, items)]
        confirmed = audit.confirmed()
    except OSError:  # `QueueCrosscheck` meets the same queue, and reports it
        return [_without_hashes(item) for item in items]
    for at in range(len(done) - 1, -1, -1):
        item = done[at]
        if isinstance(item, RecordRun):
            done[at] = item._replace(result=item.result._replace(confirmed=confirmed))
            break
    return done


def _without_hashes(item: Item) -> Item:
    # the comparison with queues needs no hashes of keys
    if not isinstance(item, RecordRun):
        return item
    return item._replace(result=item.result._replace(hashes=np.empty(0, np.int32)))


def _checked(audit: PartAudit, items: Iterable[Item]) -> Iterator[Item]:
    # a run that directly follows another joins it if all its messages are confirmed and no queue begins in it
    open_run: RecordRun | None = None
    for item in items:
        following = item._replace(result=audit.check(item.result)) if isinstance(item, RecordRun) else None
        if open_run is not None and following is not None and _continues(following, open_run):
            open_run = _together(open_run, following)
            continue
        if open_run is not None:
            yield open_run
        open_run = following
        if following is None:
            yield item
    if open_run is not None:
        yield open_run


def _continues(run: RecordRun, before: RecordRun) -> bool:
    return before.end == run.physical_offset and not (len(run.result.rest) or len(run.result.first))


def _together(run: RecordRun, following: RecordRun) -> RecordRun:
    summary = run.result.summary.with_next(following.result.summary)
    size, messages = run.size + following.size, run.messages + following.messages
    return RecordRun(run.physical_offset, size, messages, run.result._replace(summary=summary))


def _raise(_: QueueKey, error: OSError) -> NoReturn:
    raise error
