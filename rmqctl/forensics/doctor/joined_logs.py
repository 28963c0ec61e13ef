"""Find the place where the log of one broker ends and the log of another begins.

An old master that comes back as a slave reports its own end, and the new master sends its log from there on, whatever
lies before (DefaultHA compares no epochs). The slave's log then has messages that the master never had, from where the
two diverged, and the master's from one physical offset on, often in the middle of a record. No checksum and no
PHYSICALOFFSET shows it. The numbers of the messages in their queues do: at the joint they jump in many queues at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.finding import Finding
from rmqctl.format.message import Damage, Message
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.format.columns import Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

JUMPS_MAX = 20_000  # of a log with more, the queue offsets mean nothing
_IN_NO_QUEUE = (TransactionType.PREPARED, TransactionType.ROLLBACK)
_OF_JOINED = frozenset({"unit-mismatch", "missing-unit", "bad-queue-offset"})


class _Jump(NamedTuple):
    """A queue offset that does not follow the one before it in its queue."""

    before: int  # physical offset
    at: int  # physical offset
    queue: int
    skipped: int  # negative where the number went back


def may_be_joined(findings: Iterable[Finding]) -> bool:
    """Return whether several queues do not agree with the log."""
    return len({(one.topic, one.queue_id) for one in findings if one.code in _OF_JOINED}) > 1


def find_joint(store: ReadOnlyStore, threads: int) -> Finding | None:
    """Return a finding on the one place where two logs meet, or None.

    The first log ends at its physical offset, and the second has a record after its size. Reads the log.

    At least two queues, and half of those that go on, must jump there. A broker that starts on queues that are behind
    its log gives numbers a second time, and damage takes numbers away: neither counts. Something else must show that
    the second log is of another history: numbers that skip in one queue and go back in another, a store time that goes
    back, another store host, or a record that is cut where numbers go back. A file of another log in the middle of a
    log makes two joints, and is no joint. Raises OSError.
    """
    if store.commit_log.has_entries:
        return None
    numbers = _Numbers(store)
    for item in numbers.builder.scan(store.commit_log, threads=threads, check_bodies=False):
        numbers.take(item)
        if len(numbers.jumps) > JUMPS_MAX:
            return None
    found = [joint for at, jumps in _places(numbers.jumps) if (joint := numbers.joint(at, jumps)) is not None]
    return found[0] if len(found) == 1 else None


class _Numbers:
    """The last queue offset of each queue during a pass over the log."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self.builder = DispatchRequestBuilder(with_keys=False)
        self.jumps: list[_Jump] = []
        self._store = store
        self._damage: list[Damage] = []
        self._reach: dict[int, tuple[int, int, int]] = {}  # queue: first and last physical offset, last queue offset

    def take(self, item: object) -> None:
        if isinstance(item, Damage):
            self._damage.append(item)
        elif isinstance(item, RecordRun):
            self._rows(item.result.messages)

    def _rows(self, rows: Rows) -> None:
        rows = rows[~np.isin(rows["sys_flag"] & TRANSACTION_MASK, _IN_NO_QUEUE)]
        rows = rows[np.argsort(rows["queue"], kind="stable")]
        if not len(rows):
            return
        queues, offsets, places = rows["queue"], rows["queue_offset"], rows["physical_offset"]
        is_first = np.append(True, queues[1:] != queues[:-1])
        for row in np.flatnonzero(~is_first[1:] & (offsets[1:] != offsets[:-1] + 1)).tolist():
            skipped = int(offsets[row + 1]) - int(offsets[row]) - 1
            self.jumps.append(_Jump(int(places[row]), int(places[row + 1]), int(queues[row]), skipped))
        firsts = [*np.flatnonzero(is_first).tolist(), len(rows)]
        for first, end in pairwise(firsts):
            queue, at, number = int(queues[first]), int(places[first]), int(offsets[first])
            begin, before, known = self._reach.get(queue, (at, at, number - 1))
            if number != known + 1:
                self.jumps.append(_Jump(before, at, queue, number - known - 1))
            self._reach[queue] = (begin, int(places[end - 1]), int(offsets[end - 1]))

    def joint(self, at: int, jumps: list[_Jump]) -> Finding | None:
        """Return a finding on the joint at `at`, where all `jumps` may lie."""
        jumps = [jump for jump in jumps if not isinstance(self._store.queues.get(self._key(jump)), BatchConsumeQueue)]
        crossing = sum(first < at <= last for first, last, _ in self._reach.values())
        if len(jumps) < 2 or 2 * len(jumps) < crossing:
            return None
        before = self._store.commit_log.message_at(max(jump.before for jump in jumps))
        after = self._store.commit_log.message_at(at)
        if before is None or after is None:
            return None
        between = [one for one in self._damage if before.physical_offset < one.physical_offset < at]
        shown = list(_evidence(jumps, before, after, is_cut=bool(between)))
        if not shown:
            return None
        begin = between[0].physical_offset if between else self._other_history(before, at)
        at = max(begin, between[0].end if between else begin)
        detail = f"the queue offsets of {len(jumps)} of {counted(crossing, 'queue')} jump here; {', '.join(shown)}"
        return Finding("log-joint", self._store.commit_log.path_of(begin), begin, detail, size=at - begin)

    def _other_history(self, before: Message, at: int) -> int:
        """Return where store host or store time show another log, or `at`."""
        for item in self._store.commit_log.scan(ScanSummary(), start=before.physical_offset, stop=at):
            if isinstance(item, Message):
                if item.store_host != before.store_host or item.store_timestamp < before.store_timestamp:
                    return item.physical_offset
                before = item
        return at

    def _key(self, jump: _Jump) -> QueueKey:
        return self.builder.keys[jump.queue]


def _places(jumps: list[_Jump]) -> Iterator[tuple[int, list[_Jump]]]:
    """Yield where several queues jump, each with the jumps, no jump twice."""
    jumps = sorted(jumps, key=lambda jump: jump.at)
    before, places = np.array([jump.before for jump in jumps]), np.array([jump.at for jump in jumps])
    for at in np.unique(places).tolist():
        here = np.flatnonzero((before < at) & (places >= at))
        if len({jumps[number].queue for number in here}) > 1:
            yield at, [jumps[number] for number in here]
            before[here] = OFFSET_MAX


def _evidence(jumps: list[_Jump], before: Message, after: Message, *, is_cut: bool) -> Iterator[str]:
    """Yield what shows that two messages are of two histories."""
    back = sum(jump.skipped < 0 for jump in jumps)
    if 0 < back < len(jumps):
        yield f"{back} go back, and {len(jumps) - back} skip numbers"
    if before.store_host != after.store_host:
        yield f"{before.store_host} stored the messages before, {after.store_host} those after"
    if after.store_timestamp < before.store_timestamp:
        yield f"the store time goes back by {before.store_timestamp - after.store_timestamp} ms"
    if is_cut and back > 1:
        yield "a record is cut here"
