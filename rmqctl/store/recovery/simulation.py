"""A broker's restart, simulated by `rmqctl.store.recovery.rules`.

It does not change the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.format import checkpoint
from rmqctl.format.message import Damage
from rmqctl.format.profile import profile_of, start_rules
from rmqctl.kernels import dispatch_scan, queue_offset_range, queue_simulate, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX, is_file_name
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import store_path
from rmqctl.store.config.config_file import starts_empty
from rmqctl.store.config.store_path import Layout
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.data_loss import QUEUE_KEYS, DataLoss, LossCounter
from rmqctl.store.recovery.queues.database_queues import DatabaseQueue, DatabaseQueues
from rmqctl.store.recovery.queues.simulated_queues import NOTHING_BUILT, RecoveredQueues, folder_entries
from rmqctl.store.recovery.replay import KnownRecords, LoadedLog, RecoveryScan, ReputPass, ScanEnd
from rmqctl.store.recovery.rules import Mode, StartFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Blank
    from rmqctl.format.profile import Profile, StartRules
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.queues.simulated_queues import BuiltSpans

NO_LOG_START = -1  # the broker's min offset of a log without files
CONFIGS = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json")
SMALL_CATCH_UP = 16 * 1024 * 1024  # bytes; more are dispatched in large steps, because `finish` goes by records


class RestartedQueue(NamedTuple):
    """A queue after the simulated restart; offsets are in units."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    lost: int  # messages
    cut_from: int | None  # max offset before the cut; None: no unit was cut
    deleted: tuple[str, ...]  # names of files
    missing: int = 0  # queue offsets without a row, of a queue in RocksDB: no consumer gets past the first one


@dataclass(frozen=True)
class RestartOutcome:
    """The result of a broker's restart; offsets are in bytes."""

    profile: Profile
    mode: Mode
    refused: str | None = None  # why the broker does not load the store; the other fields then have no meaning
    hangs: str | None = None  # why start() waits forever
    hangs_at: int | None = None  # the physical offset that start() waits for, which is missing in the log
    start_file_path: str | None = None  # where the scan begins; None, as start_file, if the log has no file
    start_file: StartFile | None = None
    end: ScanEnd | None = None
    queues_end: int = rules.NO_QUEUE
    queues_are_cut: bool = False
    min_phy_offset: int = NO_LOG_START
    max_phy_offset: int = 0
    lost: DataLoss = field(default_factory=DataLoss)
    """Messages after the log's end, also in deleted files (`rmqctl.store.recovery.data_loss`)."""
    deleted_log_files: tuple[str, ...] = ()
    dropped_index_files: tuple[str, ...] = ()
    queues: tuple[RestartedQueue, ...] = ()
    fills_queues: bool = True  # what the start adds to `queues` is simulated

    @property
    def problem(self) -> str | None:
        """Why the broker never gets ready (`refused` or `hangs`)."""
        return self.refused or self.hangs

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
            "queues": [dict(zip(QUEUE_KEYS, queue, strict=False)) for queue in self.queues],
        }


def can_simulate(store: ReadOnlyStore, profile: Profile) -> bool:
    """Return whether a start of the store can be simulated.

    That of a store with queues in files can, and of one with its queues in RocksDB for brokers of 5.3.2 and later. With
    queues in both, it is a start that reads the files (combineCQPreferCQType=default). The log of a DLedger store must
    have a file of DLedger.
    """
    if store.path.layout is Layout.DLEDGER:
        return can_simulate_group(store)
    if store.path.layout is not Layout.ROCKSDB:
        return store.path.layout in (Layout.FILES, Layout.COMBINED)
    return store.path.reads_queues and start_rules(profile.version, store.conf.start).recovers_from_queues


def can_simulate_group(store: ReadOnlyStore) -> bool:
    """Return whether the store has a log of DLedger with a file."""
    return any(file.path.parent == store.path.entries_in for file in store.commit_log.queue.files)


class RestartSimulation:
    """Simulates one restart of a broker on `store`.

    The rules are those of the version of `profile`, with the settings of broker.conf. If `mode` is None, it depends on
    whether the file `abort` exists. `built` are rebuilt queues that are added to those of `store`.

    If the broker does not load the store, `refused` is the reason, and all other results have no meaning. Otherwise the
    caller scans the log from `scanned_from` or before, calls `on_messages` (with columns from `builder`) and `damage`,
    and at the end `finish`. Raises OSError if log or queues cannot be read.
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
        self._store = store
        self._profile = profile
        self._rules = start_rules(profile.version, store.conf.start)
        self._builder = builder
        self._checkpoint = _padded_checkpoint(store)
        self._queues: RecoveredQueues | DatabaseQueues = (
            DatabaseQueues(store, self._rules, builder)
            if store.path.layout is Layout.ROCKSDB
            else RecoveredQueues(store, self._rules, builder, built)
        )
        self._losses = LossCounter(builder, store.commit_log.message_at)
        self._scan: RecoveryScan | None = None
        self._reput: ReputPass | None = None
        self._log, refusal = self._loaded_log()
        self.refused = self._config_refusal() or refusal or self._queues.load()
        index_entries = folder_entries(store.storage, store.path.part(store_path.INDEX))
        self.refused = self.refused or rules.index_refusal(index_entries, self._rules)
        self._queues_end = self._queues.end
        self._known = KnownRecords(builder, self._rules)
        if self.refused is None and self._log.files:
            self._begin()

    @property
    def log_files(self) -> list[str]:
        """Return the names of the log files that the broker loads, in its order."""
        return [file.name for file in self._log.files]

    @property
    def scanned_from(self) -> int:
        """Return where the caller's log scan must begin (physical offset), or 0."""
        if self._scan is None:
            return 0
        return min(self._scan.position, self._reput.position if self._reput is not None else self._scan.position)

    @property
    def scan_start(self) -> int:
        """Return the physical offset where the broker's scan begins; 0 without a scan."""
        return self._scan.start if self._scan is not None else 0

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
        until = self._known.until(messages)
        if until == len(messages):
            return None
        why = "a V2 record, for a topic longer than 127 bytes, which this version takes for no record"
        return ScanEnd(int(messages[until]["physical_offset"]), "", why)

    def on_messages(self, described: DispatchColumns) -> None:
        """Simulate the scan of good messages, in log order."""
        messages, scan = described.messages, self._scan
        if scan is None:
            self._losses.messages(messages)
        elif len(messages):
            scan.on_messages(messages)
            if self._reput is not None:
                self._reput.on_messages(messages, scan.position)
            if scan.end is not None:
                behind = np.searchsorted(messages["physical_offset"], scan.end.physical_offset)
                self._losses.messages(messages[behind:])

    def damage(self, damage: Damage) -> None:
        """Simulate the scan of a damaged place, where the log may end."""
        if self._scan is not None:
            self._scan.damage(damage.physical_offset, damage.end, damage.code)
            if self._scan.end is not None and damage.physical_offset >= self._scan.end.physical_offset:
                self._losses.damage(damage)

    def hear(self, item: Blank | Damage | RecordRun, log_end: int = OFFSET_MAX) -> None:
        """Simulate one item of a scan by the `builder` of this simulation.

        Messages and damage that end behind the physical offset `log_end` are left out.
        """
        if isinstance(item, RecordRun):
            messages = item.result.messages
            kept = len(messages) if item.end <= log_end else int(np.searchsorted(messages["physical_offset"], log_end))
            self.on_messages(item.result._replace(messages=messages[:kept]))
        elif isinstance(item, Damage) and item.end <= log_end:
            self.damage(item)

    def pass_over(self, end: int) -> None:
        """Accept the log up to `end` unread: its messages must have their units."""
        if self._scan is not None:
            self._scan.pass_over(end)

    def finish(self) -> RestartOutcome:
        """Cut the log, simulate start(), and return the result."""
        if self.refused is not None:
            return RestartOutcome(self._profile, self.mode, refused=self.refused)
        outcome = self._outcome()
        queues = list(self._queues.with_offsets())
        units: dict[QueueKey, int] = {}
        missing: dict[QueueKey, int] = {}
        for key, queue, _, max_offset in queues:
            if isinstance(queue, DatabaseQueue):
                units[key], missing[key] = queue.behind(outcome.max_phy_offset), queue.missing
            else:
                units[key] = max((queue.cut_from or 0) - max_offset, 0)
        lost_of = self._losses.of_queues(units)
        return replace(
            outcome,
            queues_end=self._queues_end,
            lost=self._losses.total(units),
            dropped_index_files=self.dropped_index_files(),
            queues=tuple(
                RestartedQueue(*key, low, high, lost_of.get(key, 0), queue.cut_from, queue.deleted, missing.get(key, 0))
                for key, queue, low, high in queues
            ),
        )

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
        folder, storage = self._store.path.part(store_path.CONFIG), self._store.storage
        for name in CONFIGS:
            config, path = self._store.config(name), self._store.path
            if config.content is not None or path.unread_config(name):
                continue
            if database := path.database_of(name):
                return f"{database} cannot be read: {config.problem}"
            if not starts_empty(storage, folder, name, self._profile):
                return f"config/{name} and its .bak cannot be read: {config.problem}"
        return None

    def _loaded_log(self) -> tuple[LoadedLog, str | None]:
        """Return the log as the broker loads it, and why it does not load, if so.

        A broker also loads files whose names have too few digits.
        """
        storage, size = self._store.storage, self._store.commit_log.queue.file_size
        found = [(folder, entry) for folder in self._store.path.commitlogs for entry in folder_entries(storage, folder)]
        entries = [entry for _, entry in found]
        files = [file for file in self._store.commit_log.queue.files if file.size_on_disk == size and size]
        files += [
            MappedFile(storage, folder / entry.name, int(entry.name), size)
            for folder, entry in found
            if entry.name.isdecimal() and not is_file_name(entry.name) and entry.size == size and not entry.is_folder
        ]
        refusal = rules.load_refusal(entries, size, self._rules)
        until = rules.loads_until(entries, size, self._rules)
        return LoadedLog(files, size, self._rules, until), refusal and f"commitlog: {refusal}"

    def _begin(self) -> None:
        self._scan = RecoveryScan(self._log, self._queues, self._known, self.mode, self._checkpoint)
        start_file = self._log.files[self._scan.start_file.number]
        self.refused = rules.accelerated_refusal(self.mode, self._checkpoint, start_file.end, self._rules)
        is_moved = any(file.file_from_offset % self._log.file_size for file in self._log.files)
        is_dispatched_later = self._dispatches_in_start_alone(self._scan) and not self._rules.awaits_confirmation
        # else the dispatch has to wait: a cut moves what it reads, or load() fails at a queue that it would fill
        if is_dispatched_later and not is_moved and not self._rules.fails_on_empty_last_queue_file:
            self._reput = ReputPass(self._log, self._queues, self._known)

    def _dispatches_in_start_alone(self, scan: RecoveryScan) -> bool:
        return self._rules.dispatches_in_start and scan.dispatches_from is None

    def _outcome(self) -> RestartOutcome:
        if self._scan is not None:
            return self._recovered(self._scan, self._scan.finish())
        if self.mode is Mode.ABNORMAL or self._rules.destroys_queues_without_log:
            self._queues.destroy()
        else:
            self._queues.correct_min_offsets(NO_LOG_START)
        return RestartOutcome(self._profile, self.mode)

    def _recovered(self, scan: RecoveryScan, end: ScanEnd) -> RestartOutcome:
        start_file_path = self._log.files[scan.start_file.number].name
        self._log.cut(end.physical_offset)
        cut = rules.cuts_queues(self.mode, self._rules, self._queues_end, self._queues.end, end.physical_offset)
        if cut:
            self._queues.cut(end.physical_offset)
        behind = self._log.written_end(self._log.files[-1])
        refused = self._load_refusal(scan, cut=cut)
        starts = self._rules.dispatches_in_start and refused is None
        hangs, hangs_at = self._start(scan, end.physical_offset, behind, cut=cut) if starts else (None, None)
        return RestartOutcome(
            self._profile,
            self.mode,
            refused=refused or self._queues.correct_min_offsets(self._log.start),
            hangs=hangs,
            hangs_at=hangs_at,
            start_file_path=start_file_path,
            start_file=scan.start_file,
            end=end,
            queues_are_cut=cut,
            min_phy_offset=self._log.start,
            max_phy_offset=behind,
            deleted_log_files=self._deleted_log_files(end.physical_offset),
        )

    def _load_refusal(self, scan: RecoveryScan, *, cut: bool) -> str | None:
        if self._queues.undispatchable is not None and self._reput is None:  # where load() dispatches
            return self._queues.undispatchable.why
        if self._dispatches_in_start_alone(scan) and not cut and (empty := self._queues.empty_file_refusal()):
            return empty
        if not self._rules.requires_dup_info:
            return None
        confirmed = scan.last
        if confirmed is None and self._rules.knows_confirmed_offset:
            said = self._checkpoint.confirm_phy_offset if self._checkpoint is not None else 0
            confirmed = said if self.mode is Mode.NORMAL else scan.start
        return self._log.compensation_refusal(confirmed or 0)

    def _start(self, scan: RecoveryScan, scan_end: int, log_end: int, *, cut: bool) -> tuple[str | None, int | None]:
        """Return why and where start() waits forever for its dispatch, if it does."""
        begun = self._reput if not cut else None
        reput = begun or ReputPass(self._log, self._queues, self._known)
        if self._rules.awaits_confirmation:
            what = f"start() waits for the dispatch from {reput.start} to {log_end}, which duplicationEnable holds up"
            return (what, reput.start) if reput.start < log_end else (None, None)
        is_dispatched = self.mode is Mode.ABNORMAL and not cut and reput.start >= scan.start and scan_end >= log_end
        if begun is None and is_dispatched:  # by the scan, all of it: a second dispatch changes nothing
            hangs_at = self._log.first_gap(reput.start, log_end)
        else:
            if begun is None and log_end - reput.start > SMALL_CATCH_UP:
                for item in self._builder.scan(self._store.commit_log, threads=1, start=reput.start, stop=log_end):
                    if isinstance(item, RecordRun):
                        reput.on_messages(item.result.messages, log_end)
            reput.finish(log_end)
            hangs_at = reput.hangs_at
        what, stuck = f"start() dispatches from {reput.start} to {log_end}, and", self._queues.undispatchable
        if stuck is not None:
            return f"{what} tries again and again: {stuck.why}", stuck.physical_offset
        if hangs_at is not None:
            return f"{what} waits for bytes at {hangs_at}, which no file has", hangs_at
        return None, None

    def _deleted_log_files(self, log_end: int) -> tuple[str, ...]:
        """Return the log files after the log's end, and all of 0 bytes."""
        files = filter(self._log.loads, self._store.commit_log.queue.files)
        return tuple(file.name for file in files if file.file_from_offset > log_end or not file.size)


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
    return outcomes_of([RestartSimulation(store, profile, builder, mode)], store, builder, threads)[0]


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
    outcomes = outcomes_of(restarts, store, builder, threads)
    return [(tuple(same), outcome) for same, outcome in zip(by_rules.values(), outcomes, strict=True)]


def outcomes_of(
    restarts: Sequence[RestartSimulation], store: ReadOnlyStore, builder: DispatchRequestBuilder, threads: int
) -> list[RestartOutcome]:
    """Scan the log once for all restarts, and return their outcomes."""
    starts = [restart.scanned_from for restart in restarts if restart.refused is None]
    for item in builder.scan(store.commit_log, threads=threads, start=min(starts)) if starts else ():
        for restart in restarts:
            restart.hear(item)
    return [restart.finish() for restart in restarts]
