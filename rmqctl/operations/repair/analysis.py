"""The analysis of a store before `recover` repairs the store.

The analysis finds the end of the log, the files that do not agree with the end, and the lost messages.

A broker's abnormal recovery may begin to read after a damaged place. The broker's next normal start may begin to read
before the damaged place, and would end the log there. The checkpoint decides from which file an abnormal recovery
reads. The number of log files decides from which file a normal start reads. Damage that the next normal start would
read gets placeholders, with or without `--keep-going` (`rmqctl.operations.placeholder.planner`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest, Unreadable, read_hint
from rmqctl.forensics.audit import client_audit
from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.forensics.audit.index_audit import IndexAudit
from rmqctl.forensics.renamed_files import MISPLACED, RenamedFiles
from rmqctl.forensics.verify import BROKER_OVERLOOKS
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.format.profile import start_rules
from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.operations.placeholder.blocks import PlaceholderBlock, are_served
from rmqctl.operations.placeholder.planner import Placeholders
from rmqctl.operations.repair.log_end import LogEnd
from rmqctl.operations.repair.missing_files import messages_between
from rmqctl.operations.repair.rehearsal import loadable
from rmqctl.operations.repair.renamed_files import notes_of_renamed
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.dispatch.queue_offset_ranges import QueueSpans
from rmqctl.store.read.commit_log import FILE_OVERLAP, SERVED, UNREADABLE, ScanSummary, is_served
from rmqctl.store.read.file_scan import FileScan, RecordRun, end_position, next_readable
from rmqctl.store.recovery.data_loss import NO_RECORDS, DataLoss, LossCounter
from rmqctl.store.recovery.replay import LONGEST_V1_TOPIC
from rmqctl.store.recovery.rules import Mode, start_file, third_from_end
from rmqctl.store.recovery.simulation import RestartSimulation
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.renamed_files import RenamedFile
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.simulation import RestartOutcome

PLACEHOLDERS_LIMIT = 4 * 1024**3  # bytes of the log: a wrong file name could need any number
REPLACED_FILES_MAX = 10_000  # missing files; each is a separate change in the journal
KEPT_GOING = SERVED | {FILE_OVERLAP, "file-gap", "file-length"}  # and damage between files


class RecoveryAnalysis:
    """Analyses how a broker with `profile` would recover a store.

    `threads` threads read the log. If `mode` is None, the file `abort` decides whether the recovery is normal or
    abnormal. The analysis does not change the store. With `end_at`, the log ends at or before the physical offset
    `end_at`.

    `run` sets the following attributes. `end` is where the log ends. `queues` has the differences between the queues
    and the log. `kept` has the messages before the log's end. `losses` counts the messages after the log's end.
    `keepable` is the number of messages that `keep_going` would keep. `placeholders` has the planned placeholders.
    `replaced` counts the messages that placeholders replace. `replaced_of` counts the replaced messages by queue.
    `last` is the physical offset and the store time of the last message. `passed_over` counts damaged places before the
    start of the recovery. `index` has the differences between the index and the log. `index` is None if no index is
    compared with the log. `restart` is the simulated start of the broker. `met` has the physical offsets of damage that
    needs placeholders: the next normal start would end the log there, or damage next to it is too small for a record.
    If `met` has offsets that are not in `replaced_at`, run one more analysis with them in `replaced_at`, and do not use
    the other attributes. `placeholders_bytes` is how many bytes of the log get placeholders. `rejected` counts messages
    of the log that clients reject, by the code of the finding.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        profile: Profile,
        mode: Mode | None,
        threads: int,
        *,
        keep_going: bool = False,
        replaced_at: frozenset[int] = frozenset(),
        end_at: int | None = None,
        placeholders_limit: int = PLACEHOLDERS_LIMIT,
    ) -> None:
        self.store = store
        self.met: frozenset[int] = frozenset()
        self._builder = builder = DispatchRequestBuilder(with_keys=store.conf.index_enabled, with_tags=True)
        self._loadable: ReadOnlyStore | None = None
        self.restart = RestartSimulation(store, profile, builder, mode)
        self._start = self._first_start(profile, mode)
        self.index = self._index_audit()
        self._profile = profile
        self._threads = threads
        self._keep_going = keep_going
        self._replaced_at = replaced_at
        self._end_at = end_at
        self._placeholders_limit = placeholders_limit
        self._damaged: list[tuple[int, int]] = []
        log = store.commit_log
        self.end = LogEnd(log.queue)
        self.placeholders = Placeholders(store, profile)
        self.queues = QueueCrosscheck(store, builder, self.placeholders.blocks.message_at)
        self.kept = QueueSpans(builder, self.placeholders.message_at)
        self.losses = LossCounter(builder, log.message_at)
        self.records = 0
        self.last: tuple[int, int] = (0, 0)  # physical offset and store time of the last message
        self.newest = 0  # the latest store time of a message
        self.oldest = 0  # the store time of the first message
        self.replaced = DataLoss()
        self.rejected: Counter[str] = Counter()
        self.placeholders_bytes = 0
        self._replaced_files = 0
        self.replaced_of: Counter[QueueKey] = Counter()
        self.passed_over = 0
        self._holes: list[Damage] = []
        self._unreplaced: list[Damage] = []
        self._served: Damage | None = None
        self._is_dropped_for_damage = False
        self._passing: list[Damage] = []
        self._passed: list[list[Damage]] = []
        self._left: list[Damage] = []
        self._renamed = RenamedFiles(log.queue)
        self._file_begins = {file.file_from_offset for file in log.queue.files}
        self.notes: list[str] = []

    def _first_start(self, profile: Profile, mode: Mode | None) -> RestartSimulation:
        """Return the simulated broker start that decides where the log ends.

        If a broker's load() refuses the store, the start is simulated with corrected file lengths.
        """
        if self.restart.refused is None:
            return self.restart
        self._loadable = loadable(self.store)
        mended = RestartSimulation(self._loadable, profile, self._builder, mode)
        return mended if mended.refused is None else self.restart

    def starts(self) -> tuple[RestartOutcome, RestartOutcome]:
        """Return the results of two simulated broker starts.

        The first start is on the store as it is, the second with corrected file lengths. The results are equal if a
        broker's load() accepts the store. Call `starts` once, after `run`.
        """
        now = self.restart.finish()
        return now, now if self._start is self.restart else self._start.finish()

    def close(self) -> None:
        """Close the files of the store with corrected file lengths."""
        if self._loadable is not None:
            self._loadable.close()

    def _index_audit(self) -> IndexAudit | None:
        """Return the audit that compares the index with the log, or None.

        The result is None if the store gets no index, or if the index is rebuilt in any case.
        """
        if self.restart.dropped_index_files():
            self._builder.leave_keys_out()
        return IndexAudit(self.store, self._builder) if self._builder.with_keys else None

    @staticmethod
    def warm_up(store: ReadOnlyStore) -> None:
        """Compile or load the kernels, unless the store is small."""
        modules = (scan, dispatch_scan, cq_unit_compare, index_match, queue_offset_range, queue_simulate)
        warm_up(*modules, size=store.allocated)

    def run(self) -> None:
        """Analyse the store, and set the attributes of this object.

        Raises Unreadable if a part of the log, or a queue, cannot be read. Raises BadRequest if more than
        `placeholders_limit` bytes of the log need placeholders.
        """
        for item in self.store.commit_log.scan_columns(ScanSummary(), self._builder.take, threads=self._threads):
            self._see(item)
        if self._unreplaced and self._keep_going:
            self._end_at_damage(self._unreplaced)
        elif self._unreplaced:
            self._placeholder(self._unreplaced[-1].end)
        self._meet()
        self._replace_torn_end()
        for damage in self._holes:
            if damage.physical_offset < self.end.offset:
                self.queues.lost(damage)
        self.queues.finish(self.end.offset)
        if self.index is not None:
            self.index.finish()
        for finding in self.queues.findings:
            if finding.code == "unreadable":
                raise Unreadable(finding.detail, path=finding.path, hint=read_hint(finding.detail))
        self.notes += [self._note_of_gap(damage) for damage in self._holes if self._is_gap_in_the_log(damage)]
        self.notes += [*self._note_of_misplaced(), *notes_of_renamed(self.renamed)]

    def _is_gap_in_the_log(self, damage: Damage) -> bool:
        return damage.code == "file-gap" and damage.physical_offset < self.end.offset

    def _note_of_gap(self, gap: Damage) -> str:
        """Return the note on a gap in the log. Consumers silently skip gaps of the log."""
        count = messages_between(self.store, gap.physical_offset, gap.end)
        size = self.store.commit_log.queue.file_size
        files, lost = (
            counted(-(-gap.size // size), "file"),
            counted(count, "message") if count else "messages that no queue knows of",
        )
        return (
            f"the log lacks {files} from {gap.physical_offset:020d} on, and with that {lost}: brokers start all the "
            "same, and "
            "consumers silently get none of these. Put back what a copy or a slave has; or --keep-going fills the gap "
            "with placeholders"
        )

    def _note_of_misplaced(self) -> Iterator[str]:
        """Yield a note on records whose PHYSICALOFFSET differs from their position.

        Brokers serve the record if a unit points to the record. If a broker dispatches the record again, the unit
        points to PHYSICALOFFSET instead.
        """
        misplaced = [damage for damage in self.left if damage.code == MISPLACED]
        unserved = sum(damage.message is not None and not self._has_unit(damage.message) for damage in misplaced)
        if unserved:
            stay, lead = ("stays", "it") if unserved == 1 else ("stay", "them")
            yield (
                f"{counted(unserved, 'message')} with another PHYSICALOFFSET than their place {stay} in the log, but "
                "no queue leads to "
                f"{lead}: brokers do not serve {lead}. A file of the log may have a wrong name"
            )

    def _has_unit(self, message: Message) -> bool:
        unit = self.store.unit(message.topic, message.queue_id, message.queue_offset)
        return unit is not None and unit.physical_offset == message.physical_offset

    @property
    def whole_from(self) -> int:
        """Return the physical offset after the last damage in the planned log.

        From `whole_from` to the end of the planned log, there are only good records and placeholders. If some good
        records cannot be dispatched, the result is the end of the log.
        """
        if self.restart.dispatch_fails:
            return self.end.offset
        if not self._profile.knows_long_topics and any(
            len(topic) > LONGEST_V1_TOPIC for topic, _ in self._builder.queues
        ):
            return self.end.offset
        unreplaced = (
            behind
            for at, behind in self._damaged
            if at < self.end.offset and self.placeholders.blocks.of_damage(at) is None
        )
        return max(unreplaced, default=0)

    @property
    def keepable(self) -> int:
        """Return the number of good messages after damage that ends the log.

        The result is 0 if the messages are stale (`_is_stale`).
        """
        return self.losses.good if self._is_dropped_for_damage else 0

    def _is_stale(self, physical_offset: int) -> bool:
        """Return whether a message after damage is from an earlier state of the log.

        A stale message has an earlier store time than the last message before the damage. The queue of a stale message
        exists, but has no unit for the message. A broker that cuts the log leaves the old bytes in the file. New
        messages overwrite the old bytes later.
        """
        message = self.store.commit_log.message_at(physical_offset)
        if (
            message is None
            or message.store_timestamp >= self.last[1]
            or (message.topic, message.queue_id) not in self.store.queues
        ):
            return False
        unit = self.store.unit(message.topic, message.queue_id, message.queue_offset)
        return unit is None or unit.physical_offset != physical_offset

    def _see(self, item: Message | Blank | Damage | RecordRun) -> None:
        if self._unreplaced and not isinstance(item, Damage):
            self._placeholder(item.physical_offset)
        if not isinstance(item, Damage):
            self._passing = []
            self._renamed.good(item)
        if self._end_at is not None and not self.end.is_final and item.end > self._end_at:
            self.end.end(
                self.end.offset, f"no file has {self._end_at}: brokers of {self._profile.label} wait there for ever"
            )
        if isinstance(item, RecordRun):
            self._messages(item.result, item.end)
        elif isinstance(item, Message):
            self._messages(self._builder.of(item), item.end)
        elif isinstance(item, Blank):
            if not self.end.is_final:
                self.end.blank(item)
        else:
            self._damage(item)

    def _messages(self, described: DispatchColumns, end: int) -> None:
        self._start.on_messages(described)
        scan_end = self._start.scan_end
        starts_at = int(described.messages[0]["physical_offset"])
        if self._keep_going and not self.end.is_final:
            scan_end = self._start.unknown_record(described.messages)
        stops_here = scan_end is not None and starts_at <= scan_end.physical_offset < end
        if scan_end is not None and stops_here and not self.end.is_final:
            self.end.end(scan_end.physical_offset, scan_end.why)  # a record that this broker version does not read
            described = self._split(described, scan_end.physical_offset)
        if self.end.is_final:
            if self._is_dropped_for_damage and not self.losses.good:
                self._is_dropped_for_damage = not self._is_stale(starts_at)
            self.losses.messages(described.messages)
            return
        self._take(described, None)
        self.end.message(end)

    def _split(self, described: DispatchColumns, end: int) -> DispatchColumns:
        """Process the messages before `end`. Return the messages from `end` on."""
        at = int(described.messages["physical_offset"].searchsorted(end))
        if at:
            self._take(described._replace(messages=described.messages[:at]), None)
        return described._replace(messages=described.messages[at:])

    def _take(self, described: DispatchColumns, damaged: Message | None) -> None:
        messages = described.messages
        if damaged is None:
            self.rejected += client_audit.count_rejected(messages)
        self.queues.on_messages(messages, damaged)
        if self.index is not None:
            self.index.on_messages(described)
        self.kept.on_messages(messages)
        self.records += len(messages)
        self.last = int(messages[-1]["physical_offset"]), int(messages[-1]["store_timestamp"])
        stored = messages["store_timestamp"]
        self.newest = max(self.newest, int(stored.max()))
        self.oldest = self.oldest or int(stored[np.argmax(stored != 0)])

    def _damage(self, damage: Damage) -> None:
        self._renamed.damage(damage)
        if damage.code in UNREADABLE:
            path = damage.path or self.store.commit_log.path_of(damage.physical_offset)
            raise Unreadable(damage.detail, path=path, offset=damage.physical_offset, hint=read_hint(damage.detail))
        self._start.damage(damage)
        if not self.end.is_final:
            self._damaged.append((damage.physical_offset, damage.end))
        if damage.code == "file-length":
            self._see_excess(damage)
        if not self.end.is_final and self._is_to_be_replaced(damage):
            self._unreplaced.append(damage)
            return
        if self._unreplaced and (is_served(damage) or not self._keep_going):
            self._placeholder(damage.physical_offset)
        is_kept = self._keep_going and is_served(damage)
        if not self.end.is_final and not is_kept and self._ends_the_log(damage):
            self._is_dropped_for_damage = True
            self.end.end(self.end.offset, f"{damage.code} at {damage.physical_offset}: {damage.detail}")
        if self.end.is_final:
            self.losses.damage(damage)
            return
        if is_served(damage):
            self.end.message(damage.end)
            self._served = damage
        elif damage.code not in KEPT_GOING or self._is_short(damage):
            self._pass(damage)
        self._see_damaged(damage)

    def _is_to_be_replaced(self, damage: Damage) -> bool:
        if is_served(damage):
            return damage.physical_offset in self._replaced_at
        if self._keep_going:
            return damage.code not in KEPT_GOING or self._is_missing(damage)
        return damage.physical_offset in self._replaced_at and (damage.code not in KEPT_GOING or self._is_short(damage))

    def _see_damaged(self, damage: Damage) -> None:
        """Note a damaged place that stays in the log.

        A unit may point to a damaged message, so the damaged message is compared with its queue.
        """
        if damage.code != "file-length":  # the repair corrects the length
            self._left.append(damage)
        message = damage.message_in_its_place
        if message is not None:
            self._take(self._builder.of(message), message)
        else:
            self._holes.append(damage)

    def _stay(self, damages: list[Damage]) -> None:
        """Count damaged places before the log's end that `recover` does not change."""
        self.passed_over += len(damages)

    @property
    def renamed(self) -> list[RenamedFile]:
        """Return the log files that were probably renamed."""
        return list(self._renamed.found())

    @property
    def left(self) -> list[Damage]:
        """Return the damage before the log's end that the repair does not change."""
        found = [damage for damage in self._left if damage.code != FILE_OVERLAP]
        found += [
            damage for damage in self.store.commit_log.queue.anomalies if damage.code == FILE_OVERLAP
        ]  # a scan reports overlaps last
        return [
            damage
            for damage in found
            if damage.physical_offset < self.end.offset and not self._has_placeholders(damage)
        ]

    def _has_placeholders(self, damage: Damage) -> bool:
        return self.placeholders.blocks.of_damage(damage.physical_offset) is not None

    def _is_missing(self, damage: Damage) -> bool:
        """Return whether the damage is a range of the log that is in no file."""
        file = self.store.commit_log.queue.at_or_before(damage.physical_offset)
        if damage.code != "file-length" or file is None:
            return damage.code == "file-gap"
        return (
            file.name == damage.path
            and file.end == damage.physical_offset
            and file.size_on_disk < self.store.commit_log.queue.file_size
        )

    def _is_short(self, damage: Damage) -> bool:
        """Return whether the damage is the missing end of a short log file."""
        return damage.code == "file-length" and self._is_missing(damage)

    def _is_in_short_file(self, damage: Damage) -> bool:
        """Return whether damage lies in a log file that is too short.

        The repair extends a short log file with zeros. The added zeros must not end the log at a later start of a
        broker.
        """
        file, size = (
            self.store.commit_log.queue.at_or_before(damage.physical_offset),
            self.store.commit_log.queue.file_size,
        )
        return file is not None and file.size_on_disk < size and damage.physical_offset < file.file_from_offset + size

    def _see_excess(self, damage: Damage) -> None:
        """Count the messages that are lost when the repair cuts a log file.

        The repair cuts a log file that is too long. Messages that are in another log file are not lost.
        """
        log = self.store.commit_log
        file = next((file for file in log.queue.files if file.name == damage.path), None)
        if file is None or file.size_on_disk <= file.size:
            return
        count = 0
        with file.with_excess() as longer:
            start = next_readable(longer, file.size)
            for item in FileScan(longer, start).items(end_position(longer)) if start is not None else ():
                if isinstance(item, Message) and log.at(item.physical_offset) != item:
                    self.losses.damage(
                        damage._replace(physical_offset=item.physical_offset, size=item.size, message=item)
                    )
                    count += 1
        if count:
            self.notes.append(
                f"{file.name} is cut to {log.queue.file_size} bytes: {counted(count, 'message')} after that are lost"
            )

    def _pass(self, damage: Damage) -> None:
        """Collect damage at places that the broker's recovery does not read."""
        if not self._passing:
            self._passed.append(self._passing)
        self._passing.append(damage)

    def _meet(self) -> None:
        """Find the damage (`met`) at which the next normal start would end the log."""
        start = self._next_start()
        for damages in self._passed:
            is_met = start <= damages[0].physical_offset or any(self._is_in_short_file(damage) for damage in damages)
            if is_met and damages[0].physical_offset < self.end.offset:
                self.met |= {damage.physical_offset for damage in damages}
            else:
                self._stay(damages)

    def _next_start(self) -> int:
        """Return the physical offset at which the next normal start begins its scan.

        The result assumes that the log ends at its planned end. After an abnormal recovery, the result is the begin of
        the third file from the end for all broker versions, as in 5.x before 5.3.2.
        """
        bases = [
            file.file_from_offset
            for file in self.store.commit_log.queue.files
            if file.file_from_offset < self.end.offset
        ]
        if not bases:
            return self.end.offset
        if self.restart.mode is Mode.ABNORMAL:
            return bases[third_from_end(len(bases))]
        rules = start_rules(self._profile.version, self.store.conf.start)
        return bases[start_file(Mode.NORMAL, rules, bases, self.end.offset, lambda _: True).number]

    def _replace_torn_end(self) -> None:
        """Replace the log's last record if its properties are torn.

        The placeholder keeps the properties that are complete.
        """
        torn = self._served
        if (
            torn is not None
            and torn.code == "torn-properties"
            and torn.message is not None
            and torn.end == self.end.offset
        ):
            self.placeholders.replace([torn], self.last[0], torn.end)
            self.placeholders_bytes += torn.size

    def _placeholder(self, good: int) -> None:
        """Replace the damage before the good record at `good` with placeholders.

        If no placeholder is possible, `keep_going` ends the log at the damage. Without `keep_going`, the damage stays.
        """
        damages, self._unreplaced = self._unreplaced, []
        if self._keep_going and self._is_stale(good):
            self._end_at_damage(damages, f"; what is after it, at {good}, is older, and no queue leads there")
            return
        size = sum(damage.size for damage in damages)
        if self._keep_going:
            self._check_placeholders_limit(damages, size, good)
        try:
            placeholders = self.placeholders.replace(damages, self.last[0], good)
        except ValueError as error:
            if self._join_served(damages):
                return
            if self._keep_going:
                self._end_at_damage(damages, f"; {error}")
                return
            self.notes.append(
                f"the next start ends the log at {damages[0].physical_offset}, {damages[0].code}: {error}"
            )
            self._stay(damages)
            for damage in damages:
                self._see_damaged(damage)
            return
        for described in (self._builder.take(block.columns()) for block in placeholders):
            if len(described.messages):
                self._take(described, None)
        self.placeholders_bytes += size
        self._count_replaced(placeholders, damages)

    def _join_served(self, damages: list[Damage]) -> bool:
        """Let the next analysis replace the record before `damages`, too.

        A few bytes are too small for a placeholder. Returns False if no damaged record that brokers serve ends there.
        """
        served, begin = self._served, damages[0].physical_offset
        if served is None or served.end != begin or begin in self._file_begins:
            return False
        self.met |= {served.physical_offset, *(damage.physical_offset for damage in damages)}
        return True

    def _check_placeholders_limit(self, damages: list[Damage], size: int, good: int) -> None:
        """Check that the placeholders for `damages` do not exceed the limit.

        Raises BadRequest if the placeholders need too many bytes or too many missing files.
        """
        needed = self.placeholders_bytes + size
        self._replaced_files += sum(
            damage.size // self.store.commit_log.queue.file_size for damage in damages if damage.code == "file-gap"
        )
        files = self._replaced_files
        if needed <= self._placeholders_limit and files <= REPLACED_FILES_MAX:
            return
        limit, hint = counted(self._placeholders_limit, "byte"), "; --placeholders-limit SIZE raises the limit"
        if files > REPLACED_FILES_MAX:
            limit, hint = counted(REPLACED_FILES_MAX, "file"), ""
        begin, end = damages[0].physical_offset, damages[-1].end
        missing = f" of {counted(files, 'missing file')}" if files else ""
        told = f"queues have {counted(messages_between(self.store, begin, end), 'message')} there"
        raise BadRequest(
            f"placeholders are needed for {counted(needed, 'byte')} of the log up to {end}{missing}, more than the "
            f"limit of {limit}; "
            f"{told}; nothing was changed",
            path=self.store.commit_log.path_of(good),
            hint=f"if this file does not belong to this log, move it away{hint}",
        )

    def _count_replaced(self, placeholders: list[PlaceholderBlock], damages: list[Damage]) -> None:
        size = 0
        for block in placeholders:
            messages = self._builder.take(block.columns()).messages
            served = messages[are_served(messages)]
            size += int(served["size"].sum(dtype=np.int64))
            for number, count in zip(*np.unique(served["queue"], return_counts=True), strict=True):
                self.replaced_of[self._builder.keys[number]] += int(count)
        removed = [damage for damage in damages if damage.message is not None or damage.code not in NO_RECORDS]
        records = max(sum(block.served for block in placeholders), len(removed))
        self.replaced = DataLoss(
            self.replaced.records + records, self.replaced.bytes + max(size, sum(damage.size for damage in removed))
        )

    def _end_at_damage(self, damages: list[Damage], why: str = "") -> None:
        """End the log at the first of the damaged places `damages`.

        The messages of all `damages` are lost.
        """
        first = damages[0]
        self.end.end(self.end.offset, f"{first.code} at {first.physical_offset}: {first.detail}{why}")
        for damage in damages:
            self.losses.damage(damage)

    def _ends_the_log(self, damage: Damage) -> bool:
        """Return whether a broker's recovery would end the log at a damage.

        If a broker does not load the store, the function applies the rules of the broker's scan. A normal scan is
        assumed to begin at the third file from the end. An abnormal scan is assumed to begin at the first file.
        """
        if self._start.refused is None:
            return self._start.scan_end is not None
        files = self.store.commit_log.queue.files
        start = files[third_from_end(len(files))].file_from_offset if self.restart.mode is Mode.NORMAL and files else 0
        # a repair fills an empty file with zeros, and zeros end the log
        is_empty = (
            damage.code == "file-length"
            and self._is_missing(damage)
            and damage.size == self.store.commit_log.queue.file_size
        )
        return damage.physical_offset >= start and (is_empty or damage.code not in BROKER_OVERLOOKS)
