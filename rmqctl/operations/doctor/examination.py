"""An examination of a store, which reads the log in one pass.

The pass finds the faults of the store, and simulates the next start of a broker. If there is a fault, the planner of
`recover` reads the log again to plan repairs. This module is not in `rmqctl.forensics`, because code that only inspects
must not import a planner of changes. `rmqctl.forensics.doctor` decides which finding belongs to which cause.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, NeedsRecovery, RmqctlError
from rmqctl.forensics.audit.compaction_audit import FILES as REFUSED
from rmqctl.forensics.audit.config_audit import audit_config_against_queues
from rmqctl.forensics.audit.state_audit import audit_abort
from rmqctl.forensics.audit.timer_audit import REPEATED
from rmqctl.forensics.doctor.joined_logs import find_joint, may_be_joined
from rmqctl.forensics.doctor.next_start import grouped_starts
from rmqctl.forensics.doctor.store_facts import StoreFacts, facts_of
from rmqctl.forensics.doctor.twins import audit_light_twins
from rmqctl.forensics.finding import Finding
from rmqctl.forensics.groups.offsets_back import audit_offsets_back
from rmqctl.forensics.groups.unreadable_queues import audit_unreadable
from rmqctl.forensics.groups.waiting_audit import audit_waiting
from rmqctl.forensics.live_writer import verify_beside_writer
from rmqctl.forensics.renamed_files import RenamedFiles
from rmqctl.forensics.verify import LEVEL_ALL, Verification
from rmqctl.forensics.witness.diagnosis import CODES_OF_RECORDS, OFFERED_MAX
from rmqctl.forensics.witness.uncovered import UncoveredFields, fields_of
from rmqctl.format.message import Damage, Message
from rmqctl.operations.doctor.surroundings import (
    audit_conf,
    audit_disk,
    audit_offsets,
    fitting,
    unread_offsets,
    wrong_sizes,
)
from rmqctl.operations.heal.plan import offered
from rmqctl.operations.repair.analysis import RecoveryPolicy
from rmqctl.operations.repair.recovery_plan import plan_recovery
from rmqctl.store.config.file_sizes import conf_as_read
from rmqctl.store.config.store_path import Layout
from rmqctl.store.journal.journals import RMQCTL_FOLDER, check_none_unfinished
from rmqctl.store.read.clock import ClockWatch
from rmqctl.store.read.file_scan import RecordRun
from rmqctl.store.read.index.tag_index import indexes_tags
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.version_guess import candidate_versions
from rmqctl.store.recovery.dledger_start import DLedgerRestart, plan_group_start
from rmqctl.store.recovery.simulation import RestartSimulation, can_simulate, plan_restart, restarts_by_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rmqctl.forensics.audit.part_audit import CheckedRun
    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.format.columns import Numbers
    from rmqctl.format.message import Blank
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.operations.doctor.surroundings import UnreadOffsets, WrongSize
    from rmqctl.operations.heal.plan import HealPlan
    from rmqctl.operations.repair.recovery_plan import RecoveryPlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.commit_log import ScanSummary
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.recovery.simulation import RestartOutcome

LEVEL_LOG = 1
ByVersion = tuple[tuple[tuple[str, ...], "RestartOutcome"], ...]


@dataclass(frozen=True)
class Repairs:
    """The plans of `recover` and of `recover --keep-going`.

    A plan is None if `recover` refuses to change the store, if a log file was renamed, or if the store has no fault.
    """

    plain: RecoveryPlan | None = None
    keep_going: RecoveryPlan | None = None
    refused: str = ""  # why `recover` refuses
    profile: str = ""  # that the user must pass to `recover`; "" if it needs none
    is_blocked: bool = False  # no verb changes the store, or only what `rebuild` and `config` change
    may_rebuild: bool = False  # although it is blocked: the log is a DLedger group's


@dataclass(frozen=True)
class Examination:
    """The result of an examination of a store, with the plans for a repair."""

    report: VerifyReport
    findings: tuple[Finding, ...]
    facts: StoreFacts
    restart: RestartOutcome | None  # a broker's next start; None: rmqctl cannot simulate one of this store
    repairs: Repairs
    broker_pid: int | None = None  # the process that has the store open
    wrong_sizes: tuple[WrongSize, ...] = ()  # of broker.conf
    by_version: ByVersion = ()  # if nobody gave a version, and the possible ones start differently: what they come to
    unread_offsets: UnreadOffsets | None = None  # of groups, which the broker does not read
    rejects_good: bool = False  # the start ends the log at a record that is whole
    healing: HealPlan | None = None  # what `heal` brings back out of the store itself; None: nothing


class Examiner:
    """Examines a store once, with `threads` threads.

    The simulated broker has the profile `profile`. If sizes of broker.conf are wrong, what the files have is examined,
    and the start with the sizes of broker.conf is simulated. `blocked` returns why no repair of a store can be planned,
    or "".
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        profile: Profile,
        threads: int,
        blocked: Callable[[ReadOnlyStore], str] = lambda _: "",
    ) -> None:
        self._said = store
        store.check_database()
        self._wrong = () if store.path.log_only else tuple(wrong_sizes(store, profile.version))
        self.store = store = fitting(store, profile.version, self._wrong)
        self.profile = profile
        self._threads = threads
        self._unread = unread_offsets(store, profile.version)
        self._blocked = blocked(store)
        self._simulation: RestartSimulation | None = None
        self._renamed = RenamedFiles(store.commit_log.queue)
        self._clock = ClockWatch()
        self._uncovered = UncoveredFields()
        self._level = LEVEL_ALL if store.path.reads_queues else LEVEL_LOG
        self._verification = Verification(store, self._level, threads, self._scan)

    @property
    def _is_in_rocksdb(self) -> bool:
        return self.store.path.layout is Layout.ROCKSDB

    @property
    def _is_of_group(self) -> bool:
        return self.store.path.layout is Layout.DLEDGER

    @property
    def reads_queues(self) -> bool:
        """Whether rmqctl can read the queues of the store."""
        return self._level == LEVEL_ALL

    def warm_up(self) -> None:
        """Compile or load the kernels."""
        self._verification.warm_up()

    def run(self) -> Examination:
        """Examine the store. Raises OSError."""
        verify_beside_writer(self._verification, self.store, self._level, self._threads)
        report = self._verification.report
        findings = (*report.findings, *self._beside_verify())
        restart = self._restart()
        renamed = list(self._renamed.found())
        if not renamed and may_be_joined(findings) and (joint := find_joint(self.store, self._threads)) is not None:
            findings = (*findings, joint)
        # with a wrong file name, a repair would drop messages that are there
        repairs = self._repairs() if not renamed and (findings or _is_troubled(restart)) else Repairs()
        facts = facts_of(
            self.store,
            findings,
            report.summary.end,
            self._verification.last_stored,
            self._verification.missed,
            _still_missed(restart, repairs.plain, self._verification.missed, in_rocksdb=self._is_in_rocksdb),
            renamed,
        )
        by_version = self._by_version() if findings or _is_troubled(restart) else ()
        refusing = next((finding for finding in findings if finding.code == REFUSED), None)
        if restart is not None and refusing is not None:
            restart = replace(restart, refused=restart.refused or f"{refusing.path}: {refusing.detail}")
        pid, unread = self.store.lock_holder(), self._unread
        rejects_good = self._rejects_good(restart)
        healing = None if renamed or repairs.refused or self._blocked else self._healing(findings)
        findings = (*findings, *self._changed_fields(healing))
        return Examination(
            report, findings, facts, restart, repairs, pid, self._wrong, by_version, unread, rejects_good, healing
        )

    def _healing(self, findings: Sequence[Finding]) -> HealPlan | None:
        suspects = {one.physical_offset for one in findings if one.code in CODES_OF_RECORDS} - {None}
        report = self._verification.report
        if report.summary.damages or 0 < len(suspects) <= OFFERED_MAX or self._uncovered.suspects():
            return offered(self.store, report.summary.records, self._threads)
        return None

    def _changed_fields(self, healing: HealPlan | None) -> Iterator[Finding]:
        suspects = self._uncovered.suspects() - {one.physical_offset for one in self._verification.report.findings}
        for one in healing.healed if healing is not None else ():
            if one.physical_offset in suspects:
                path = self.store.commit_log.path_of(one.physical_offset)
                detail = f"{one.source} ({', '.join(one.witnesses)})"
                yield Finding("field-changed", path, one.physical_offset, detail, size=one.size)

    def _rejects_good(self, restart: RestartOutcome | None) -> bool:
        if restart is None or restart.end is None or not restart.lost.records or self._is_of_group:
            return False
        return isinstance(self.store.commit_log.at(restart.end.physical_offset), Message)

    def _beside_verify(self) -> Iterator[Finding]:
        """Yield findings that `verify` with the same level does not report."""
        try:
            check_none_unfinished(self.store.storage, self.store.path.root)
        except NeedsRecovery as error:
            yield Finding("unfinished-change", RMQCTL_FOLDER, None, error.what)
        except RmqctlError:  # a journal that cannot be read: verify reports it
            pass
        for fall in self._clock.falls():
            path = self.store.commit_log.path_of(fall.physical_offset)
            yield Finding("store-times-fall", path, fall.physical_offset, fall.words)
        yield from audit_conf(self._said.conf, self.profile.version, self._wrong)
        yield from audit_disk(self.store, self.profile)
        yield from audit_offsets(self._unread)
        if self._level < LEVEL_ALL:
            yield from audit_abort(self.store)
        else:
            yield from audit_config_against_queues(self.store)
            yield from audit_light_twins(self.store, self._verification.beside_number)
            yield from audit_waiting(self.store, self._verification.last_stored)
            yield from (finding for finding in self._verification.of_timers if finding.code == REPEATED)
            yield from audit_unreadable(self.store)
            yield from audit_offsets_back(self.store, self._verification.last_stored)

    def _scan(self, summary: ScanSummary, builder: DispatchRequestBuilder | None) -> Iterator[ScanItem | RecordRun]:
        if builder is not None and can_simulate(self.store, self.profile) and not self._wrong:
            with suppress(OSError):  # verify reports what cannot be read
                simulation = DLedgerRestart if self._is_of_group else RestartSimulation
                self._simulation = simulation(self.store, self.profile, builder)

        def take(columns: Columns) -> tuple[Numbers, DispatchColumns | CheckedRun | None]:
            return fields_of(columns), builder.take(columns) if builder else None

        for found in self.store.commit_log.scan_columns(summary, take, threads=self._threads):
            if isinstance(found, RecordRun):
                fields, result = found.result
                item: Blank | Damage | RecordRun = found._replace(result=result)
                self._clock.hear(fields[0], fields[1])
                self._uncovered.hear(fields)
            elif isinstance(found, Message):
                item = RecordRun(found.physical_offset, found.size, 1, builder.of(found) if builder else None)
                self._clock.hear([found.physical_offset], [found.store_timestamp])
            else:
                item = found
            if self._simulation is not None:
                self._simulation.hear(item)
            self._renamed.put(item)
            yield item

    def _restart(self) -> RestartOutcome | None:
        if self._simulation is not None:
            return self._simulation.finish()
        if not can_simulate(self.store, self.profile):
            return None
        if self._wrong:
            return self._restart_as_said()
        if self.store.commit_log.queue.files:
            return None
        return plan_restart(self.store, self.profile)

    def _by_version(self) -> ByVersion:
        is_given = self.profile.label != self.profile.name
        if is_given or self._wrong or self.store.path.layout is not Layout.FILES:
            return ()
        try:
            found = restarts_by_rules(self.store, candidate_versions(self.store, self.profile), self._threads)
        except OSError:
            return ()
        return grouped_starts(found)

    def _restart_as_said(self) -> RestartOutcome:
        conf = conf_as_read(self._said.conf, self.profile.version)
        said = ReadOnlyStore(self.store.path.root, conf, storage=self.store.storage)
        try:
            if self._is_of_group:
                return plan_group_start(said, self.profile, self._threads)
            return plan_restart(said, self.profile, self._threads)
        finally:
            said.close()

    def _repairs(self) -> Repairs:
        if self._blocked:
            return Repairs(refused=self._blocked, is_blocked=True, may_rebuild=self._is_of_group)
        try:
            plain = self._plan(keep_going=False)
        except RmqctlError as error:
            return Repairs(refused=error.what)
        except OSError as error:
            return Repairs(refused=f"{error.filename}: {error.strerror}")
        found = Repairs(plain, profile=self._profile_to_give())
        if not plain.keepable and not plain.repair.leaves:
            return found
        try:
            return replace(found, keep_going=self._plan(keep_going=True))
        except (RmqctlError, OSError):
            return found

    def _profile_to_give(self) -> str:
        # none is needed if the store shows whether its broker writes TAGS into the index
        try:
            indexes_tags(self.store, None)
        except BadRequest:
            return self.profile.name
        return ""

    def _plan(self, *, keep_going: bool) -> RecoveryPlan:
        policy = RecoveryPolicy(self.profile, threads=self._threads, keep_going=keep_going)
        return plan_recovery(self.store, policy)


def _is_troubled(restart: RestartOutcome | None) -> bool:
    """Return whether a start fails, never ends, or loses messages."""
    return restart is not None and bool(restart.problem or restart.lost.records)


def _still_missed(
    restart: RestartOutcome | None, plan: RecoveryPlan | None, missed: Mapping[QueueKey, int], *, in_rocksdb: bool
) -> int | None:
    """Return how many units will be missing at queue ends after the next start.

    In RocksDB, also those in between, of the messages that are `missed` now. The ends of the queues then are compared
    with their planned ends after a repair. None if the start fails or loses messages, or without a repair plan.
    """
    if restart is None or plan is None or _is_troubled(restart):
        return None
    after = {(queue.topic, queue.queue_id): queue for queue in restart.queues}
    still = 0
    for queue in plan.repair.queues:
        found, asked = after.get((queue.topic, queue.queue_id)), queue.max_offset - queue.min_offset
        if in_rocksdb:
            held = found.max_offset - found.min_offset - found.missing if found else 0
            still += min(max(asked - held, 0), missed.get((queue.topic, queue.queue_id), 0))
        else:
            still += max(queue.max_offset - max(found.max_offset if found else 0, queue.min_offset), 0)
    return still
