"""The analysis of a store before `recover` repairs the store.

One pass over the log decides, item by item, what becomes of it:

- a message or a blank before the log's end is kept (`kept_log.py`);
- a damage at which the broker's recovery stops ends the log there (`present_start.py`), and with `--keep-going` gets
  placeholders instead (`Replacements`);
- other damage stays: brokers serve it, or begin their recovery after it;
- everything after the log's end is lost.

A broker's abnormal recovery, which begins at a file that the checkpoint decides, may begin behind a damaged place. The
next normal start, which begins at a file that the number of log files decides, may begin before it, and would end the
log there. Damage that the next normal start would read gets placeholders, with or without `--keep-going`: the end of
the pass shows which (`Replacements.needs`), and another analysis replaces it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest, Unreadable, read_hint
from rmqctl.forensics.renamed_files import RenamedFiles
from rmqctl.format.damage_kinds import codes
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.format.profile import start_rules
from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.system.storage import Kind
from rmqctl.operations.placeholder.blocks import are_served
from rmqctl.operations.placeholder.planner import Placeholders
from rmqctl.operations.repair.kept_log import KeptLog
from rmqctl.operations.repair.missing_files import messages_between
from rmqctl.operations.repair.notes import note_of_gap, notes_of_misplaced, notes_of_renamed
from rmqctl.operations.repair.present_start import PresentStart, is_short_file
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import UNREADABLE, ScanSummary, is_served
from rmqctl.store.read.file_scan import FileScan, RecordRun, end_position, next_readable
from rmqctl.store.recovery.data_loss import NO_RECORDS, DataLoss, LossCounter
from rmqctl.store.recovery.replay import LONGEST_V1_TOPIC
from rmqctl.store.recovery.rules import Mode, start_file, third_from_end
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.forensics.renamed_files import RenamedFile
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.read_only_store import ReadOnlyStore

PLACEHOLDERS_LIMIT = 4 * 1024**3  # bytes of the log: a wrong file name could need any number
KEPT_GOING = codes(is_served=True) | codes(is_read=False)  # the log goes on there without a placeholder
REPLACED_FILES_MAX = 10_000  # missing files; each is a separate change in the journal


class Replacements:
    """Plans placeholders, for at most `limit` bytes, and counts what they replace."""

    def __init__(self, store: ReadOnlyStore, profile: Profile, builder: DispatchRequestBuilder, limit: int) -> None:
        self.placeholders = Placeholders(store, profile)
        self.bytes = 0  # of the log that get placeholders
        self.lost = DataLoss()
        self.of_queues: Counter[QueueKey] = Counter()
        self.needs: frozenset[int] = frozenset()  # physical offsets of damage that also needs placeholders
        self._store = store
        self._builder = builder
        self._limit = limit
        self._files = 0

    def check_limit(self, damages: list[Damage], good: int) -> None:
        """Raise BadRequest if `damages`, before the record at `good`, are too large."""
        log = self._store.commit_log
        needed = self.bytes + sum(damage.size for damage in damages)
        self._files += sum(damage.size // log.queue.file_size for damage in damages if damage.code == "file-gap")
        if needed <= self._limit and self._files <= REPLACED_FILES_MAX:
            return
        limit, hint = counted(self._limit, "byte"), "; --placeholders-limit SIZE raises the limit"
        if self._files > REPLACED_FILES_MAX:
            limit, hint = counted(REPLACED_FILES_MAX, "file"), ""
        begin, end = damages[0].physical_offset, damages[-1].end
        missing = f" of {counted(self._files, 'missing file')}" if self._files else ""
        told = f"queues have {counted(messages_between(self._store, begin, end), 'message')} there"
        raise BadRequest(
            f"placeholders are needed for {counted(needed, 'byte')} of the log up to {end}{missing}, more than the "
            f"limit of {limit}; {told}; nothing was changed",
            path=log.path_of(good),
            hint=f"if this file does not belong to this log, move it away{hint}",
        )

    def replace(self, damages: list[Damage], before: int, good: int, take: Callable[[DispatchColumns], None]) -> None:
        """Plan the placeholders for `damages`, and pass them to `take`.

        `before` and `good` are the physical offsets of the good records around them. Raises ValueError as
        `Placeholders.replace` does, and has then planned nothing.
        """
        blocks = self.placeholders.replace(damages, before, good)
        size = 0
        for block in blocks:
            described = self._builder.take(block.columns())
            if len(described.messages):
                take(described)
            served = described.messages[are_served(described.messages)]
            size += int(served["size"].sum(dtype=np.int64))
            for number, count in zip(*np.unique(served["queue"], return_counts=True), strict=True):
                self.of_queues[self._builder.keys[number]] += int(count)
        removed = [damage for damage in damages if damage.message is not None or damage.code not in NO_RECORDS]
        records = max(sum(block.served for block in blocks), len(removed))
        removed_bytes = max(size, sum(damage.size for damage in removed))
        self.lost = DataLoss(self.lost.records + records, self.lost.bytes + removed_bytes)
        self.bytes += sum(damage.size for damage in damages)


@dataclass(frozen=True)
class RecoveryPolicy:
    """The choices of the operator, and what an analysis before this one has found."""

    profile: Profile  # of the broker that starts
    mode: Mode | None = None  # None: abnormal if the file `abort` exists
    threads: int = 1  # that read the log
    keep_going: bool = False  # put placeholders where the log would end
    placeholders_limit: int = PLACEHOLDERS_LIMIT  # bytes
    replaced_at: frozenset[int] = frozenset()  # physical offsets of damage that gets placeholders in any case
    end_at: int | None = None  # the log ends at or before this physical offset


class LogEnd:
    """The end of the log: as far as a scan has read it, until there is a `reason`.

    An empty log file continues the log if it begins where the previous file ends; after a gap, a log file does if it
    has messages.
    """

    def __init__(self, files: MappedFileQueue) -> None:
        self.offset = files.min_offset  # the end of the records that were read
        self.reason: str | None = None  # why the log ends; None until the end is final
        self.is_at_damage = False  # good messages after the end can be kept with placeholders
        self._files = files

    @property
    def is_final(self) -> bool:
        """Whether the log's end is final."""
        return self.reason is not None

    def blank(self, blank: Blank) -> None:
        """Process the blank at the end of a log file.

        If no log file follows, the log ends before the blank, as in a broker.
        """
        goes_on = self._files.find(blank.end)
        self.offset = blank.physical_offset if goes_on is None else blank.end

    def stop_at(self, damage: Damage, why: str = "") -> None:
        """End the log for good where the last record before a damage ends."""
        self.reason = f"{damage.code} at {damage.physical_offset}: {damage.detail}{why}"


class RecoveryAnalysis:
    """Analyses how a store is recovered under `policy`, and changes nothing.

    `run` fills the attributes. If `replaced.needs` has physical offsets that are not in the policy's `replaced_at`,
    run another analysis with them, and do not use the other attributes.
    """

    def __init__(self, store: ReadOnlyStore, policy: RecoveryPolicy) -> None:
        self._builder = DispatchRequestBuilder(with_keys=store.conf.index_enabled, with_tags=True)
        self.start = PresentStart(store, policy.profile, self._builder, policy.mode)
        if self.start.now.dropped_index_files():
            self._builder.leave_keys_out()
        self.replaced = Replacements(store, policy.profile, self._builder, policy.placeholders_limit)
        self.kept = KeptLog(store, self._builder, self.replaced.placeholders)
        self.losses = LossCounter(self._builder, store.commit_log.message_at)  # after the log's end
        self.end = LogEnd(store.commit_log.queue)
        self.summary = ScanSummary()  # of the log as it is
        self.notes: list[str] = []
        self.passed_over = 0  # damaged places before the start of the recovery, which stay
        self._store = store
        self._policy = policy
        self._pending: list[Damage] = []  # gets placeholders, if a good record follows
        self._passed: list[list[Damage]] = [[]]  # that the recovery does not read, in groups between good records
        self._served: Damage | None = None  # the last damage that brokers serve
        self._renamed = RenamedFiles(store.commit_log.queue)

    @staticmethod
    def warm_up(store: ReadOnlyStore) -> None:
        """Compile or load the kernels, unless the store is small."""
        modules = (scan, dispatch_scan, cq_unit_compare, index_match, queue_offset_range, queue_simulate)
        warm_up(*modules, size=store.allocated)

    def run(self) -> None:
        """Analyse the store, and fill the attributes.

        Raises Unreadable if a part of the log, or a queue, cannot be read. Raises BadRequest if more bytes of the log
        need placeholders than the policy allows, unless a wrong file name explains that.
        """
        items = self._builder.scan(self._store.commit_log, self.summary, threads=self._policy.threads)
        try:
            for item in items:
                self._renamed.put(item)
                self._see(item)
        except BadRequest:
            for item in items:
                self._renamed.put(item)
            self._check_names_on_grid()  # a wrong name is why placeholders would need too many bytes
            raise
        self._check_names_on_grid()
        if self._pending and self._policy.keep_going:
            self._end_at_damage(self._pending)
        elif self._pending:
            self._replace_pending(self._pending[-1].end)
        self._find_damage_of_next_start()
        self._replace_torn_end()
        end = self.end.offset
        self.kept.finish(end)
        self.notes += [note_of_gap(self._store, gap) for gap in self.kept.gaps(end)]
        self.notes += [*notes_of_misplaced(self._store, self.kept.damages(end)), *notes_of_renamed(self.renamed)]

    def _check_names_on_grid(self) -> None:
        """Raise Unreadable if a renamed log file has a name off the grid.

        Brokers read at the physical offset modulo the file size (CommitLog.getData), so that they may serve all of a
        file whose name is no multiple of the file size. A repair would lose that.
        """
        size = self._store.commit_log.queue.file_size
        for file in self.renamed:
            is_free = self._store.storage.entry(file.right_path).kind is Kind.MISSING
            if file.records and is_free and int(file.path.name) % size:
                raise Unreadable(
                    f"its name is no multiple of the file size, and all its {counted(file.records, 'record')} say the "
                    f"offsets of {file.right_path.name}: it was renamed; nothing was changed",
                    path=file.name,
                    hint=f"rename it back: mv -n {quoted(file.path)} {quoted(file.right_path)}",
                )

    def _see(self, item: Blank | Damage | RecordRun) -> None:
        if not isinstance(item, Damage):
            if self._pending:
                self._replace_pending(item.physical_offset)
            if self._passed[-1]:
                self._passed.append([])
        end_at = self._policy.end_at
        if end_at is not None and not self.end.is_final and item.end > end_at:
            self.end.reason = f"no file has {end_at}: brokers of {self._policy.profile.label} wait there for ever"
        if isinstance(item, RecordRun):
            self._messages(item.result, item.end)
        elif isinstance(item, Damage):
            self._damage(item)
        elif not self.end.is_final:
            self.end.blank(item)

    def _messages(self, described: DispatchColumns, end: int) -> None:
        start, begin = self.start.corrected, int(described.messages[0]["physical_offset"])
        for each in self.start.scanning:
            each.on_messages(described)
        if not self.end.is_final:
            scan_end = start.scan_end
            if self._policy.keep_going:
                scan_end = start.unknown_record(described.messages)
            # an end at damage before these messages is for `_damage` to judge
            if scan_end is None or not begin <= scan_end.physical_offset < end:
                self.kept.take(described)
                self.end.offset = end
                return
            # an end among good messages: a record that this version does not know
            self.end.offset, self.end.reason = scan_end.physical_offset, scan_end.why
            at = int(described.messages["physical_offset"].searchsorted(scan_end.physical_offset))
            if at:
                self.kept.take(described._replace(messages=described.messages[:at]))
            described = described._replace(messages=described.messages[at:])
        if self.end.is_at_damage and not self.losses.good:
            self.end.is_at_damage = not self._is_stale(begin)
        self.losses.messages(described.messages)

    def _damage(self, damage: Damage) -> None:
        if damage.code in UNREADABLE:
            path = damage.path or self._store.commit_log.path_of(damage.physical_offset)
            raise Unreadable(damage.detail, path=path, offset=damage.physical_offset, hint=read_hint(damage.detail))
        for each in self.start.scanning:
            each.damage(damage)
        if damage.code == "file-length":
            self._see_excess(damage)
        if not self.end.is_final and self._is_to_be_replaced(damage):
            self._pending.append(damage)
            return
        keep_going, is_kept = self._policy.keep_going, is_served(damage)
        if self._pending and (is_kept or not keep_going):
            self._replace_pending(damage.physical_offset)
        if not self.end.is_final and not (keep_going and is_kept) and self.start.has_ended(damage):
            self.end.stop_at(damage)
            self.end.is_at_damage = True
        if self.end.is_final:
            self.losses.damage(damage)
            return
        if is_kept:
            self.end.offset = damage.end
            self._served = damage
        elif damage.code not in KEPT_GOING or is_short_file(self._store.commit_log.queue, damage):
            self._passed[-1].append(damage)
        self.kept.take_damage(damage)

    def _is_to_be_replaced(self, damage: Damage) -> bool:
        log, is_asked = self._store.commit_log.queue, damage.physical_offset in self._policy.replaced_at
        if is_served(damage):
            return is_asked
        if self._policy.keep_going:
            return damage.code not in KEPT_GOING or damage.code == "file-gap" or is_short_file(log, damage)
        return is_asked and (damage.code not in KEPT_GOING or is_short_file(log, damage))

    def _replace_pending(self, good: int) -> None:
        """Replace the damage before the good record at `good` with placeholders.

        If none is possible, `keep_going` ends the log at the damage; without `keep_going`, the damage stays.
        """
        damages, self._pending = self._pending, []
        keep_going = self._policy.keep_going
        if keep_going and self._is_stale(good):
            self._end_at_damage(damages, f"; what is after it, at {good}, is older, and no queue leads there")
            return
        if keep_going:
            self.replaced.check_limit(damages, good)
        try:
            self.replaced.replace(damages, self.kept.last_at, good, self.kept.take)
        except ValueError as error:
            if self._join_served(damages):
                return
            if keep_going:
                self._end_at_damage(damages, f"; {error}")
                return
            first = damages[0]
            self.notes.append(f"the next start ends the log at {first.physical_offset}, {first.code}: {error}")
            self.passed_over += len(damages)
            for damage in damages:
                self.kept.take_damage(damage)

    def _join_served(self, damages: list[Damage]) -> bool:
        """Let the next analysis replace the record before `damages`, too.

        A few bytes are too small for a placeholder. Returns False if no damaged record that brokers serve ends there.
        """
        served, begin = self._served, damages[0].physical_offset
        files = self._store.commit_log.queue.files
        if served is None or served.end != begin or any(file.file_from_offset == begin for file in files):
            return False
        self.replaced.needs |= {served.physical_offset, *(damage.physical_offset for damage in damages)}
        return True

    def _end_at_damage(self, damages: list[Damage], why: str = "") -> None:
        self.end.stop_at(damages[0], why)
        for damage in damages:
            self.losses.damage(damage)

    def _is_stale(self, physical_offset: int) -> bool:
        """Return whether a message after damage is from an earlier state of the log.

        A broker that cuts the log leaves the old bytes in the file until new messages overwrite them. A stale message
        has an earlier store time than the last message before the damage, and its queue exists, but has no unit for it.
        """
        message = self._store.commit_log.message_at(physical_offset)
        return (
            message is not None
            and message.store_timestamp < self.kept.stored.last
            and (message.topic, message.queue_id) in self._store.queues
            and self._store.unit_of(message) is None
        )

    def _see_excess(self, damage: Damage) -> None:
        # the repair cuts a log file that is too long: messages of the excess are lost if no other log file has them
        log = self._store.commit_log
        file = next((file for file in log.queue.files if file.name == damage.path), None)
        if file is None or file.size_on_disk <= file.size:
            return
        count = 0
        with file.with_excess() as longer:
            start = next_readable(longer, file.size)
            for item in FileScan(longer, start).items(end_position(longer)) if start is not None else ():
                if isinstance(item, Message) and log.at(item.physical_offset) != item:
                    lost = damage._replace(physical_offset=item.physical_offset, size=item.size, message=item)
                    self.losses.damage(lost)
                    count += 1
        if count:
            self.notes.append(
                f"{file.name} is cut to {log.queue.file_size} bytes: {counted(count, 'message')} after that are lost"
            )

    def _find_damage_of_next_start(self) -> None:
        start, log = self._next_start(), self._store.commit_log.queue
        for damages in filter(None, self._passed):
            is_read = start <= damages[0].physical_offset or any(_is_in_short_file(log, damage) for damage in damages)
            if is_read and damages[0].physical_offset < self.end.offset:
                self.replaced.needs |= {damage.physical_offset for damage in damages}
            else:
                self.passed_over += len(damages)

    def _next_start(self) -> int:
        """Return the physical offset at which the next normal start begins its scan.

        The log then ends at its planned end. After an abnormal recovery, this is the begin of the third file from the
        end for all broker versions, as in 5.x before 5.3.2.
        """
        files, end = self._store.commit_log.queue.files, self.end.offset
        bases = [file.file_from_offset for file in files if file.file_from_offset < end]
        if not bases:
            return end
        if self.start.now.mode is Mode.ABNORMAL:
            return bases[third_from_end(len(bases))]
        rules = start_rules(self._policy.profile.version, self._store.conf.start)
        return bases[start_file(Mode.NORMAL, rules, bases, end, lambda _: True).number]

    def _replace_torn_end(self) -> None:
        # the placeholder keeps the properties that are complete, so no message is lost
        torn = self._served
        if torn is None or torn.code != "torn-properties" or torn.message is None or torn.end != self.end.offset:
            return
        self.replaced.placeholders.replace([torn], self.kept.last_at, torn.end)
        self.replaced.bytes += torn.size

    def close(self) -> None:
        """Close the files that only the analysis opened."""
        self.start.close()

    @property
    def renamed(self) -> list[RenamedFile]:
        """The log files that were probably renamed."""
        return list(self._renamed.found())

    @property
    def whole_from(self) -> int:
        """The physical offset after the last damage in the planned log.

        From there to the end of the planned log, there are only good records and placeholders. If some good records
        cannot be dispatched, it is the end of the log.
        """
        knows_topics = self._policy.profile.knows_long_topics or all(
            len(topic) <= LONGEST_V1_TOPIC for topic, _ in self._builder.queues
        )
        if self.start.now.dispatch_fails or not knows_topics:
            return self.end.offset
        return self.kept.whole_from(self.end.offset)

    @property
    def keepable(self) -> int:
        """The number of good messages after the log's end that `keep_going` would keep.

        0 if they are stale (`_is_stale`).
        """
        return self.losses.good if self.end.is_at_damage else 0


def _is_in_short_file(log: MappedFileQueue, damage: Damage) -> bool:
    # the repair extends a short log file with zeros, which must not end the log at a later start
    file, size = log.at_or_before(damage.physical_offset), log.file_size
    return file is not None and file.size_on_disk < size and damage.physical_offset < file.file_from_offset + size
