"""One look at a store that is to be recovered: where its log ends, what does not agree with that, what is lost.

An abnormal recovery may begin behind damage, but the start after it is one in order, and may begin in front of that: it would end the
log there. So damage in the log's last three files gets marks (`rmqctl.forensics.marks`), asked for or not.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.errors import Unreadable
from rmqctl.forensics.crosscheck import QueueCrosscheck
from rmqctl.forensics.log_end import LogEnd
from rmqctl.forensics.marks import Marks
from rmqctl.forensics.verify import BROKER_OVERLOOKS
from rmqctl.format import dispatch_scan, queue_fill, queue_span, scan, unit_match
from rmqctl.format.damage import Damage
from rmqctl.format.message import Blank, Message
from rmqctl.format.plural import counted
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.store.commit_log import UNREADABLE, UNREADABLE_HINT, ScanSummary
from rmqctl.store.dispatch_columns import Describer
from rmqctl.store.file_scan import Stretch
from rmqctl.store.kernels import prepare
from rmqctl.store.losses import NO_RECORDS, Losses
from rmqctl.store.mark_block import MarkBlock, are_served
from rmqctl.store.queue_spans import QueueSpans
from rmqctl.store.recovery import Mode, third_from_end
from rmqctl.store.repair_plan import Loss
from rmqctl.store.restart import Restart

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.store.dispatch_columns import DispatchColumns
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore

SERVED = frozenset({"bad-physical-offset", "bad-property-crc", "torn-properties"})  # records that no broker stops at
KEPT_GOING = SERVED | {"file-overlap", "file-gap", "file-length"}  # and what lies between files


class _Passed(NamedTuple):
    """Damage that the recovery does not look at, and the physical offsets of the good records around it."""

    damages: list[Damage]
    before: int
    after: int


class RecoveryLook:
    """Looks at a store once, by `threads` threads, as a broker of `profile` recovers it; `mode` None: as `abort` says. Changes nothing.

    After `run`: `end` is where the log ends; `queues` what does not agree with it; `kept` are the messages in front of
    the end, `losses` what is behind it, of which `keepable` messages would stay with `keep_going`; `marks` stand for `marked`, in
    queues `marked_of`; `last` is where the last message begins, and its store time; `passed_over` counts damaged places in front of
    where recovery begins. `restart` played the broker's own.
    """

    def __init__(self, store: ReadOnlyStore, profile: Profile, mode: Mode | None, threads: int, *, keep_going: bool = False) -> None:
        self.store = store
        self._describer = describer = Describer(with_keys=False)
        self.restart = Restart(store, profile, describer, mode)
        self._threads = threads
        self._keep_going = keep_going
        log = store.commit_log
        self.end = LogEnd(log.queue)
        self.marks = Marks(store, profile)
        self.queues = QueueCrosscheck(store, describer, self.marks.blocks.message_at)
        self.kept = QueueSpans(describer, self.marks.message_at)
        self.losses = Losses(describer, log.message_at)
        self.records = 0
        self.last: tuple[int, int] = (0, 0)  # where the last message begins, and when it was stored
        self.newest = 0  # when the youngest was
        self.marked = Loss()
        self.marked_of: Counter[QueueKey] = Counter()
        self.passed_over = 0
        self._holes: list[Damage] = []
        self._unmarked: list[Damage] = []
        self._served: Damage | None = None
        self._is_dropped_for_damage = False
        self._passing: list[Damage] = []
        self._passed: list[_Passed] = []
        self.notes: list[str] = []

    @staticmethod
    def prepare() -> None:
        """Have the kernels ready."""
        prepare(scan, dispatch_scan, unit_match, queue_span, queue_fill)

    def run(self) -> None:
        """Raises Unreadable where a part of the log, or a queue, cannot be read: nothing is decided without it."""
        for item in self.store.commit_log.scan_columns(ScanSummary(), self._describer.take, threads=self._threads):
            self._see(item)
        if self._unmarked:
            self._end_at_damage(self._unmarked)
        self._mark_passed()
        self._mark_torn_end()
        for damage in self._holes:
            if damage.physical_offset < self.end.offset:
                self.queues.lost(damage)
        self.queues.finish(self.end.offset)
        for finding in self.queues.findings:
            if finding.code == "unreadable":
                raise Unreadable(finding.detail, path=finding.path, hint=UNREADABLE_HINT)
        self.notes += [self._note_of_gap(damage) for damage in self._holes if self._is_gap_in_the_log(damage)]

    def _is_gap_in_the_log(self, damage: Damage) -> bool:
        return damage.code == "file-gap" and damage.physical_offset < self.end.offset

    def _note_of_gap(self, gap: Damage) -> str:
        """No broker minds: consumers are led around it."""
        count = 0
        for (topic, _), queue in self.store.queues.items():
            first = queue.first_where(lambda unit: unit.physical_offset >= gap.physical_offset)
            behind = queue.first_where(lambda unit: unit.physical_offset >= gap.end)
            if first is not None and not topic.startswith(LMQ_PREFIX):  # those are other queues' messages
                count += (queue.max_offset if behind is None else behind.queue_offset) - first.queue_offset
            queue.queue.close()
        size = self.store.commit_log.queue.file_size
        files, lost = counted(-(-gap.size // size), "file"), counted(count, "message") if count else "messages that no queue knows of"
        return (
            f"the log lacks {files} from {gap.physical_offset:020d} on, and with that {lost}: brokers start all the same, and "
            "consumers silently get none of these. Put back what a copy or a slave has; or --keep-going fills the gap with marks"
        )

    @property
    def keepable(self) -> int:
        """Good messages behind damage that ends the log; none where they are of an earlier life of the log."""
        return self.losses.good if self._is_dropped_for_damage else 0

    def _is_stale(self, physical_offset: int) -> bool:
        """Whether a message behind damage was there before those in front of it: it is older, and its queue does not lead to it.

        Such are left where a broker cut the log, which moves positions only, and wrote on.
        """
        message = self.store.commit_log.message_at(physical_offset)
        if message is None or message.store_timestamp >= self.last[1] or (message.topic, message.queue_id) not in self.store.queues:
            return False
        unit = self.store.unit(message.topic, message.queue_id, message.queue_offset)
        return unit is None or unit.physical_offset != physical_offset

    def _see(self, item: Message | Blank | Damage | Stretch) -> None:
        if self._unmarked and not isinstance(item, Damage):
            self._mark(item.physical_offset)
        if self._passing and not isinstance(item, Damage):
            self._passed[-1] = self._passed[-1]._replace(after=item.physical_offset)
            self._passing = []
        if isinstance(item, Stretch):
            self._messages(item.taken, item.end)
        elif isinstance(item, Message):
            self._messages(self._describer.of(item), item.end)
        elif isinstance(item, Blank):
            if not self.end.is_final:
                self.end.blank(item)
        else:
            self._damage(item)

    def _messages(self, described: DispatchColumns, end: int) -> None:
        self.restart.see(described)
        scan_end = self.restart.scan_end
        starts_at = int(described.messages[0]["physical_offset"])
        stops_here = scan_end is not None and starts_at <= scan_end.physical_offset < end
        if scan_end is not None and stops_here and not self.end.is_final:
            self.end.end(scan_end.physical_offset, scan_end.why)  # what this version takes for no record
            described = self._split(described, scan_end.physical_offset)
        if self.end.is_final:
            if self._is_dropped_for_damage and not self.losses.good:
                self._is_dropped_for_damage = not self._is_stale(starts_at)
            self.losses.messages(described.messages)
            return
        self._take(described, None)
        self.end.message(end)

    def _split(self, described: DispatchColumns, end: int) -> DispatchColumns:
        """The messages from `end` on; those in front of it are taken."""
        at = int(described.messages["physical_offset"].searchsorted(end))
        if at:
            self._take(described._replace(messages=described.messages[:at]), None)
        return described._replace(messages=described.messages[at:])

    def _take(self, described: DispatchColumns, damaged: Message | None) -> None:
        messages = described.messages
        self.queues.see(described, damaged)
        self.kept.see(messages)
        self.records += len(messages)
        self.last = int(messages[-1]["physical_offset"]), int(messages[-1]["store_timestamp"])
        self.newest = max(self.newest, int(messages["store_timestamp"].max()))

    def _damage(self, damage: Damage) -> None:
        if damage.code in UNREADABLE:
            path = damage.path or self.store.commit_log.path_of(damage.physical_offset)
            raise Unreadable(damage.detail, path=path, offset=damage.physical_offset, hint=UNREADABLE_HINT)
        self.restart.damage(damage)
        if self._keep_going and not self.end.is_final and (damage.code not in KEPT_GOING or self._is_missing(damage)):
            self._unmarked.append(damage)
            return
        if self._unmarked and damage.code in SERVED:
            self._mark(damage.physical_offset)
        is_kept = self._keep_going and damage.code in SERVED
        if not self.end.is_final and not is_kept and self._ends_the_log(damage):
            self._is_dropped_for_damage = True
            self.end.end(self.end.offset, f"{damage.code} at {damage.physical_offset}: {damage.detail}")
        if self.end.is_final:
            self.losses.damage(damage)
            return
        if damage.code in SERVED:
            self.end.message(damage.end)
            self._served = damage
        elif damage.code not in KEPT_GOING:
            self._pass(damage)
        message = damage.message_in_its_place
        if message is not None:
            self._take(self._describer.of(message), message)
        else:
            self._holes.append(damage)

    def _is_missing(self, damage: Damage) -> bool:
        """Whether these are bytes that the log should have, and no file has."""
        file = self.store.commit_log.queue.at_or_before(damage.physical_offset)
        is_too_short = damage.code == "file-length" and file is not None and file.name == damage.path and file.end == damage.physical_offset
        return is_too_short or damage.code == "file-gap"

    def _pass(self, damage: Damage) -> None:
        """Damage in front of where the recovery begins."""
        if not self._passing:
            self._passed.append(_Passed(self._passing, self.last[0], damage.end))
        self._passing.append(damage)

    def _mark_passed(self) -> None:
        """Marks for what an abnormal recovery passes over, and the next start, one in order, would end the log at."""
        kept = [file.file_from_offset for file in self.store.commit_log.queue.files if file.file_from_offset < self.end.offset]
        start = kept[third_from_end(len(kept))] if kept else 0
        for damages, before, after in self._passed:
            is_met = self.restart.mode is Mode.ABNORMAL and start <= damages[0].physical_offset < self.end.offset
            try:
                marks = self.marks.replace(damages, before, after) if is_met else []
            except ValueError as error:
                self.notes.append(f"the next start ends the log at {damages[0].physical_offset}, {damages[0].code}: {error}")
                continue
            if marks:
                self._count_marked(marks, damages)
            else:
                self.passed_over += len(damages)

    def _mark_torn_end(self) -> None:
        """The last record was not written to its end, but brokers serve it: it stays, with the properties that are whole."""
        torn = self._served
        if torn is not None and torn.code == "torn-properties" and torn.message is not None and torn.end == self.end.offset:
            self.marks.replace([torn], self.last[0], torn.end)

    def _mark(self, good: int) -> None:
        """A good record follows, at `good`: what is damaged in front of it gets marks. Where that cannot be, the log ends there."""
        damages, self._unmarked = self._unmarked, []
        if self._is_stale(good):
            self._end_at_damage(damages, f"; what is behind it, at {good}, is older, and no queue leads there")
            return
        try:
            marks = self.marks.replace(damages, self.last[0], good)
        except ValueError as error:
            self._end_at_damage(damages, f"; {error}")
            return
        for described in (self._describer.take(block.columns()) for block in marks):
            if len(described.messages):
                self._take(described, None)
        self._count_marked(marks, damages)

    def _count_marked(self, marks: list[MarkBlock], damages: list[Damage]) -> None:
        size = 0
        for block in marks:
            messages = self._describer.take(block.columns()).messages
            served = messages[are_served(messages)]
            size += int(served["size"].sum(dtype=np.int64))
            for number, count in zip(*np.unique(served["queue"], return_counts=True), strict=True):
                topic, queue_id = self._describer.queues[number]
                self.marked_of[topic.decode("utf-8", "replace"), queue_id] += int(count)
        gone = [damage for damage in damages if damage.message is not None or damage.code not in NO_RECORDS]
        records = max(sum(block.served for block in marks), len(gone))
        self.marked = Loss(self.marked.records + records, self.marked.bytes + max(size, sum(damage.size for damage in gone)))

    def _end_at_damage(self, damages: list[Damage], why: str = "") -> None:
        """Damaged places that nothing stands for: the log ends at the first, and what they held is lost."""
        first = damages[0]
        self.end.end(self.end.offset, f"{first.code} at {first.physical_offset}: {first.detail}{why}")
        for damage in damages:
            self.losses.damage(damage)

    def _ends_the_log(self, damage: Damage) -> bool:
        """As the broker's own look decides; where it does not load the store, by what ends a scan, from where it would begin."""
        if self.restart.refused is None:
            return self.restart.scan_end is not None
        files = self.store.commit_log.queue.files
        start = files[third_from_end(len(files))].file_from_offset if self.restart.mode is Mode.NORMAL and files else 0
        # an empty file gets zeros, at which the log ends
        is_empty = damage.code == "file-length" and self._is_missing(damage) and damage.size == self.store.commit_log.queue.file_size
        return damage.physical_offset >= start and (is_empty or damage.code not in BROKER_OVERLOOKS)
