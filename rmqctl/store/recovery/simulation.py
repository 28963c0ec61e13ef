"""The simulation of a broker's restart.

The simulation applies the rules of `rmqctl.store.recovery.rules` and does not change the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.format import checkpoint
from rmqctl.format.message import MAGIC_V1, Damage, Message
from rmqctl.format.profile import profile_of, start_rules
from rmqctl.kernels import dispatch_scan, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.mapped_file_queue import is_file_name
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import store_path
from rmqctl.store.config.empty_config import starts_empty
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.data_loss import DataLoss, LossCounter
from rmqctl.store.recovery.replay import Dispatch, RecoveryPass, RecoveryScan, ReputPass, ScanEnd
from rmqctl.store.recovery.rules import HEAD_SIZE, FileHead, FolderEntry, Mode, StartFile
from rmqctl.store.recovery.simulated_queues import NOTHING_BUILT, RecoveredQueues, folder_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.format.columns import Rows
    from rmqctl.format.profile import Profile, StartRules
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.simulated_queues import BuiltSpans

NO_LOG_START = -1  # the broker's min offset of a log without files
CONFIGS = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json")
SMALL_CATCH_UP = 16 * 1024 * 1024


class QueueOutcome(NamedTuple):
    """A queue after the simulated restart; offsets are in units.

    `lost` is the number of messages that the queue loses. `cut_from` is the max offset before the cut, or None if no
    units were cut. `deleted` names the deleted files of the queue.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    lost: int
    cut_from: int | None
    deleted: tuple[str, ...]


@dataclass(frozen=True)
class RestartOutcome:
    """The result of a broker's restart; offsets are in bytes.

    If the broker does not load the store, `refused` is the reason, and the other fields have no meaning. If start()
    waits forever, `hangs` is the reason. If start() waits forever, `hangs_at` is the physical offset that is missing in
    the log. `lost` counts messages after the log's end, by the rules in `rmqctl.store.recovery.data_loss`. Messages in
    `deleted_log_files` are part of `lost`. `start_file_path` is the file where the scan begins, and `start_file` has
    the reason. If the log has no file, `start_file_path` and `start_file` are None.
    """

    profile: Profile
    mode: Mode
    refused: str | None = None
    hangs: str | None = None
    hangs_at: int | None = None
    start_file_path: str | None = None
    start_file: StartFile | None = None
    end: ScanEnd | None = None
    queues_end: int = rules.NO_QUEUE
    queues_are_cut: bool = False
    min_phy_offset: int = NO_LOG_START
    max_phy_offset: int = 0
    lost: DataLoss = field(default_factory=DataLoss)
    deleted_log_files: tuple[str, ...] = ()
    dropped_index_files: tuple[str, ...] = ()
    queues: tuple[QueueOutcome, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the value of `restart` in the output of `recover -o json`."""
        if self.refused is not None:
            return {"refused": self.refused}
        if self.hangs is not None:
            return {"hangs": self.hangs}
        return {
            "minPhyOffset": self.min_phy_offset,
            "maxPhyOffset": self.max_phy_offset,
            "lost": self.lost._asdict(),
            "queues": [
                {
                    "topic": queue.topic,
                    "queueId": queue.queue_id,
                    "minOffset": queue.min_offset,
                    "maxOffset": queue.max_offset,
                }
                for queue in self.queues
            ],
        }


class RestartSimulation:
    """Simulates one restart of a broker on `store`.

    The rules are those of the version of `profile`, with the settings of broker.conf. The caller scans the log, calls
    `on_messages` and `damage`, and at the end `finish`. If `mode` is None, the mode depends on whether the file `abort`
    exists. `builder` makes the dispatch columns for `on_messages`. If the broker does not load the store, `refused` is
    the reason. If `refused` is set, all other results have no meaning. The caller's scan must begin at or before
    `scanned_from`. `built` are rebuilt queues that the simulation adds to the queues of `store`. Raises OSError if log
    or queues cannot be read.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        profile: Profile,
        builder: DispatchRequestBuilder,
        mode: Mode | None = None,
        built: BuiltSpans = NOTHING_BUILT,
    ) -> None:
        warm_up(queue_simulate, queue_offset_range, size=store.allocated)
        self.mode = mode or rules.mode_of(has_abort=store.path.has_abort)
        self.start_file: StartFile | None = None
        self._store = store
        self._profile = profile
        self._rules = start_rules(profile.version, store.conf.start)
        self._builder = builder
        self._checkpoint = _padded_checkpoint(store)
        self._queues = RecoveredQueues(store, self._rules, builder, built)
        self._losses = LossCounter(builder, store.commit_log.message_at)
        self._scan: RecoveryScan | None = None
        self._scan_start = 0
        self._reput: ReputPass | None = None
        self._empty_file: str | None = None  # why load() fails at a queue that only start() would fill
        size, entries = store.commit_log.queue.file_size, self._log_entries()
        self._loads_until = rules.loads_until(entries, size, self._rules)
        self.refused = self._config_refusal() or self._log_refusal(entries, size) or self._queues.load()
        self.refused = self.refused or rules.index_refusal(self._index_entries(), self._rules)
        files = [file for file in store.commit_log.queue.files if file.size_on_disk == size and size]
        files += self._short_named(size)
        self._log = RecoveryPass([file for file in files if self._is_loaded(file)], size, self._rules)
        self._queues_end = self._queues.end
        self._dispatch = Dispatch(self._queues, builder, self._rules)
        if self.refused is None and self._log.files:
            self._begin()

    @property
    def scanned_from(self) -> int:
        """Return where the caller's log scan must begin (physical offset), or 0."""
        if self._scan is None:
            return 0
        reput_from = self._reput_from(self._queues_end) if self._reput else self._scan.position
        return min(self._scan.position, reput_from)

    @property
    def scan_start(self) -> int:
        """Return the physical offset where the broker's scan begins; 0 without a scan."""
        return self._scan_start

    @property
    def scan_end(self) -> ScanEnd | None:
        """Return the end of the log that the scan has found, or None."""
        return self._scan.end if self._scan is not None else None

    @property
    def dispatch_fails(self) -> bool:
        """Return whether the scan has found a message that a broker cannot dispatch."""
        return self._queues.undispatchable is not None

    def unknown_record(self, messages: Rows) -> ScanEnd | None:
        """Return where the broker ends the log at a good message, or None."""
        until = self._dispatch.known_until(messages, 0)
        if until == len(messages):
            return None
        why = "a V2 record, for a topic longer than 127 bytes, which this version takes for no record"
        return ScanEnd(int(messages[until]["physical_offset"]), "", why)

    def on_messages(self, described: DispatchColumns) -> None:
        """Simulate the scan of good messages, in log order."""
        messages = described.messages
        if self._scan is None:
            self._losses.messages(messages)
        if self._scan is None or not len(messages):
            return
        self._scan.on_messages(messages)
        if self._reput is not None:
            self._reput.on_messages(messages, self._scan.position)
        if self._scan.end is not None:
            behind = int(np.searchsorted(messages["physical_offset"], self._scan.end.physical_offset))
            if behind < len(messages):
                self._losses.messages(messages[behind:])

    def damage(self, damage: Damage) -> None:
        """Simulate the scan of a damaged place, where the log may end."""
        if self._scan is not None:
            self._scan.damage(damage.physical_offset, damage.end, damage.code)
            if self._scan.end is not None and damage.physical_offset >= self._scan.end.physical_offset:
                self._losses.damage(damage)

    def hear(self, item: ScanItem | RecordRun) -> None:
        """Simulate one item of a log scan with the `builder` of this simulation."""
        if isinstance(item, Damage):
            self.damage(item)
        elif isinstance(item, RecordRun):
            self.on_messages(item.result)
        elif isinstance(item, Message):
            self.on_messages(self._builder.of(item))

    def pass_over(self, end: int) -> None:
        """Accept the log up to `end` unread: its messages must have their units."""
        if self._scan is not None:
            self._scan.pass_over(end)

    def listen(self, threads: int) -> None:
        """Scan the log, from `scanned_from` on. Raises OSError."""
        log, start = self._store.commit_log, self.scanned_from
        for item in log.scan_columns(ScanSummary(), self._builder.take, threads=threads, start=start):
            self.hear(item)

    def finish(self) -> RestartOutcome:
        """Cut the log, simulate start(), and return the result."""
        if self.refused is not None:
            return RestartOutcome(self._profile, self.mode, refused=self.refused)
        if self._scan is None or self.start_file is None:
            return self._without_log()
        return self._recovered(self._scan.finish(), self.start_file)

    def dropped_index_files(self) -> tuple[str, ...]:
        """Return the index files that load() deletes. Raises OSError."""
        dropped = []
        for index_file in self._store.index.files:
            header = index_file.header()
            if header is not None and rules.is_index_dropped(self.mode, header.end_timestamp, self._checkpoint):
                dropped.append(index_file.file.name)
            index_file.file.close()
        return tuple(dropped)

    def _config_refusal(self) -> str | None:
        """Return why the broker exits (`empty_config`), or None."""
        folder, storage = self._store.path.part(store_path.CONFIG), self._store.storage
        for name in CONFIGS:
            config = self._store.config(name)
            if config.content is None and not starts_empty(storage, folder, name, self._profile):
                return f"config/{name} and its .bak cannot be read: {config.problem}"
        return None

    def _log_entries(self) -> list[FolderEntry]:
        entries: list[FolderEntry] = []
        for folder in self._store.path.commitlogs:
            entries += folder_entries(self._store.storage, folder)
        return entries

    def _index_entries(self) -> list[FolderEntry]:
        return folder_entries(self._store.storage, self._store.path.part(store_path.INDEX))

    def _short_named(self, size: int) -> list[MappedFile]:
        """Return the log files of brokers whose names have too few digits."""
        storage = self._store.storage
        return [
            MappedFile(storage, folder / entry.name, int(entry.name), size)
            for folder in (self._store.path.commitlogs if self._store.commit_log.queue.foreign else ())
            for entry in folder_entries(storage, folder)
            if entry.name.isdecimal() and not is_file_name(entry.name) and entry.size == size and not entry.is_folder
        ]

    def _log_refusal(self, entries: list[FolderEntry], size: int) -> str | None:
        refusal = rules.load_refusal(entries, size, self._rules)
        return refusal and f"commitlog: {refusal}"

    def _is_loaded(self, file: MappedFile) -> bool:
        return self._loads_until is None or PurePath(file.name).name < self._loads_until

    def _first_record(self, file: MappedFile) -> FileHead | None:
        """Return the head of a file's first record, or None if it is none."""
        if not self._rules.checks_first_record:
            head = rules.head_of_file(file.read(0, HEAD_SIZE).ljust(HEAD_SIZE, b"\0"), self._rules)
            return head if rules.is_known_head(head, self._rules) else None
        found = self._log.check(file, file.file_from_offset, check_crc=self._rules.check_crc).message
        if found is None or not found.store_timestamp:
            return None
        return FileHead(MAGIC_V1, found.store_timestamp, found.physical_offset)

    def _begin(self) -> None:
        log, mode = self._log, self.mode
        self.refused = rules.accelerated_refusal(mode, self._checkpoint, self._rules)

        def matches(number: int) -> bool:
            first = self._first_record(log.files[number])
            return first is not None and rules.is_matched_recover(
                first, mode, self._checkpoint, self._queues_end, self._rules
            )

        bases = [file.file_from_offset for file in log.files]
        self.start_file = rules.start_file(mode, self._rules, bases, self._queues_end, matches)
        number = self.start_file.number
        self._scan_start = rules.scan_from(mode, bases[number], self._checkpoint, self._rules)
        dispatches_from = rules.dispatches_from(mode, self._rules, self._queues_end)
        self._scan = RecoveryScan(
            log,
            number,
            self._scan_start,
            dispatches_from,
            self._dispatch,
            checks_offset=self._rules.check_offset and mode is Mode.ABNORMAL,
            passes_over=self._rules.passes_over_wrong_lengths and mode is Mode.ABNORMAL,
        )
        if self._rules.dispatches_in_start and dispatches_from is None and not self._rules.awaits_confirmation:
            if self._rules.fails_on_empty_last_queue_file:
                self._empty_file = self._queues.empty_file_refusal()
            if not any(base % log.file_size for base in bases):  # else the cut moves what the dispatch reads
                self._reput = ReputPass(log, self._reput_from(self._queues_end), self._dispatch)

    def _reput_from(self, queues_end: int) -> int:
        return rules.reput_from(queues_end, self._log.start)

    def _without_log(self) -> RestartOutcome:
        if self.mode is Mode.ABNORMAL or self._rules.destroys_queues_without_log:
            self._queues.destroy()
        else:
            self._queues.correct_min_offsets(NO_LOG_START)
        return RestartOutcome(
            self._profile,
            self.mode,
            queues_end=self._queues_end,
            lost=self._losses.total(),
            dropped_index_files=self.dropped_index_files(),
            queues=self._outcomes(),
        )

    def _recovered(self, end: ScanEnd, start_file: StartFile) -> RestartOutcome:
        start_file_path = self._log.files[start_file.number].name
        self._log.cut(end.physical_offset)
        cut = rules.cuts_queues(self.mode, self._rules, self._queues_end, self._queues.end, end.physical_offset)
        if cut:
            self._queues.cut(end.physical_offset)
        behind = self._log.written_end(self._log.files[-1])
        failed = self._queues.undispatchable if self._reput is None else None  # where load() dispatches
        empty = self._empty_file if not cut else None
        refused = failed.why if failed else empty or self._compensation_refusal()
        starts = self._rules.dispatches_in_start and refused is None
        hangs, hangs_at = self._start(end.physical_offset, behind, cut=cut) if starts else (None, None)
        for queue, _, max_offset in self._queues.with_offsets() if cut else ():
            if queue.cut_from is not None:
                self._losses.units((queue.topic, queue.queue_id), max(queue.cut_from - max_offset, 0))
        return RestartOutcome(
            self._profile,
            self.mode,
            refused=refused or self._queues.correct_min_offsets(self._log.start),
            hangs=hangs,
            hangs_at=hangs_at,
            start_file_path=start_file_path,
            start_file=start_file,
            end=end,
            queues_end=self._queues_end,
            queues_are_cut=cut,
            min_phy_offset=self._log.start,
            max_phy_offset=behind,
            lost=self._losses.total(),
            deleted_log_files=self._deleted_log_files(end.physical_offset),
            dropped_index_files=self.dropped_index_files(),
            queues=self._outcomes(),
        )

    def _compensation_refusal(self) -> str | None:
        """Return why load() fails where it reads the log once more, or None."""
        if not self._rules.requires_dup_info or self._scan is None:
            return None
        confirmed = self._scan.last
        if confirmed is None and self._rules.knows_confirmed_offset:
            said = self._checkpoint.confirm_phy_offset if self._checkpoint is not None else 0
            confirmed = said if self.mode is Mode.NORMAL else self._scan_start
        return self._log.compensation_refusal(confirmed or 0)

    def _start(self, scan_end: int, log_end: int, *, cut: bool) -> tuple[str | None, int | None]:
        """Return why and where start() waits forever for its dispatch, if it does."""
        reput_from = self._reput_from(self._queues.end if cut or self._reput is None else self._queues_end)
        if self._rules.awaits_confirmation:
            what = f"start() waits for the dispatch from {reput_from} to {log_end}, which duplicationEnable holds up"
            return (what, reput_from) if reput_from < log_end else (None, None)
        if self._reput is not None and not cut:
            self._reput.finish(log_end)
            hangs_at = self._reput.hangs_at
        elif cut or reput_from < self._scan_start or scan_end < log_end or self.mode is Mode.NORMAL:
            hangs_at = self._catch_up(reput_from, log_end)
        else:  # the scan has dispatched all these records: a second dispatch changes nothing
            hangs_at = self._log.first_gap(reput_from, log_end)
        what, stuck = f"start() dispatches from {reput_from} to {log_end}, and", self._queues.undispatchable
        if stuck is not None:
            return f"{what} tries again and again: {stuck.why}", stuck.physical_offset
        if hangs_at is not None:
            what = f"{what} waits for bytes at {hangs_at}, which no file has"
        return None if hangs_at is None else what, hangs_at

    def _catch_up(self, reput_from: int, log_end: int) -> int | None:
        reput = ReputPass(self._log, reput_from, self._dispatch)
        if log_end - reput_from > SMALL_CATCH_UP:
            summary = ScanSummary()
            for item in self._store.commit_log.scan_columns(
                summary, self._builder.take, threads=1, start=reput_from, stop=log_end
            ):
                if isinstance(item, RecordRun):
                    reput.on_messages(item.result.messages, log_end)
        reput.finish(log_end)
        return reput.hangs_at

    def _deleted_log_files(self, log_end: int) -> tuple[str, ...]:
        """Return the log files after the log's end, and all log files of 0 bytes."""
        files = [file for file in self._store.commit_log.queue.files if self._is_loaded(file)]
        return tuple(file.name for file in files if file.file_from_offset > log_end or not file.size)

    def _outcomes(self) -> tuple[QueueOutcome, ...]:
        lost = self._losses.of_queues()
        return tuple(
            QueueOutcome(
                queue.topic,
                queue.queue_id,
                low,
                high,
                lost.get((queue.topic, queue.queue_id), 0),
                queue.cut_from,
                tuple(queue.deleted),
            )
            for queue, low, high in self._queues.with_offsets()
        )


def _padded_checkpoint(store: ReadOnlyStore) -> Checkpoint | None:
    """Return the checkpoint with zeros for bytes that the file lacks."""
    path = store.path.part(store_path.CHECKPOINT)
    if store.storage.entry(path).kind is not Kind.FILE:
        return None
    raw = store.storage.read_start(path, checkpoint.CHECKPOINT_FILE_SIZE)
    return checkpoint.decode(raw.ljust(checkpoint.CHECKPOINT_FILE_SIZE, b"\0"))


def plan_restart(store: ReadOnlyStore, profile: Profile, threads: int = 1, mode: Mode | None = None) -> RestartOutcome:
    """Simulate a broker's restart; `threads` threads scan the log.

    Raises OSError.
    """
    warm_up(scan, dispatch_scan, size=store.allocated)
    builder = DispatchRequestBuilder(with_keys=False)
    restart = RestartSimulation(store, profile, builder, mode)
    if restart.refused is None:
        restart.listen(threads)
    return restart.finish()


def restarts_by_rules(
    store: ReadOnlyStore, versions: Sequence[str], threads: int = 1
) -> list[tuple[tuple[str, ...], RestartOutcome]]:
    """Simulate a restart by each set of rules that `versions` have, in one scan.

    Each outcome comes with the versions that have these rules. Raises OSError.
    """
    by_rules: dict[StartRules, list[str]] = {}
    for version in versions:
        by_rules.setdefault(start_rules(version, store.conf.start)._replace(version=""), []).append(version)
    warm_up(scan, dispatch_scan, size=store.allocated)
    builder = DispatchRequestBuilder(with_keys=False)
    restarts = [RestartSimulation(store, profile_of(same[-1]), builder) for same in by_rules.values()]
    starts = [restart.scanned_from for restart in restarts if restart.refused is None]
    if starts:
        log = store.commit_log
        for item in log.scan_columns(ScanSummary(), builder.take, threads=threads, start=min(starts)):
            for restart in restarts:
                restart.hear(item)
    return [(tuple(same), restart.finish()) for same, restart in zip(by_rules.values(), restarts, strict=True)]
