"""Check whether a store is whole.

Level 1 checks the log, level 2 also the queues, level 3 also index, checkpoint and configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.forensics.audit import state_audit
from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME
from rmqctl.forensics.audit.client_audit import RejectedMessages
from rmqctl.forensics.audit.compaction_audit import audit_compaction
from rmqctl.forensics.audit.crosscheck import QueueCrosscheck
from rmqctl.forensics.audit.databases.database_audit import audit_database_rows, audit_databases
from rmqctl.forensics.audit.databases.database_index import DatabaseIndexAudit
from rmqctl.forensics.audit.databases.queue_database import audit_queue_database
from rmqctl.forensics.audit.index_audit import IndexAudit
from rmqctl.forensics.audit.index_findings import IndexFindings
from rmqctl.forensics.audit.part_audit import RunSummary, summary_of
from rmqctl.forensics.audit.timer_audit import REPEATED, audit_timers
from rmqctl.forensics.bit_flips import find_bit_flips
from rmqctl.forensics.finding import Finding, of_damage
from rmqctl.forensics.restart_reach import DamageTally, RestartReach
from rmqctl.forensics.survey.not_read import StorePart, not_read
from rmqctl.format import crc, properties
from rmqctl.format.damage_kinds import UNCHECKED
from rmqctl.format.message import HEAD_SIZE_MAX, Damage, Message, head_of
from rmqctl.kernels import cq_unit_compare, dispatch_scan, index_match, scan
from rmqctl.kernels.warm_up import warm_up
from rmqctl.store.config.store_path import CHECKPOINT, SIGN_OF_5_4
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
from rmqctl.store.journal.journals import CHECKPOINT_VERB, is_as_written
from rmqctl.store.read.commit_log import UNREADABLE, ScanSummary
from rmqctl.store.read.file_scan import RecordRun, ScanItem
from rmqctl.store.read.index.index_database import index_database
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqctl.forensics.audit.index_findings import IndexPart
    from rmqctl.forensics.audit.part_audit import CheckedRun
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LEVEL_QUEUES, LEVEL_ALL = 2, 3
# damage that a starting broker's scan does not check, or never meets (because the store does not load, or because only
# rmqctl cannot read a part)
# damage that ends the log or prevents loading, but not for all brokers: the simulation of a restart decides
ENDS_SOME_LOGS = frozenset({"bad-blank-size", "file-length"})
# DLedger's scan only checks the headers of entries
DLEDGER_STOPS_AT = frozenset({"bad-entry", "hole", "no-blank"})
# these findings come first, because other findings may be their consequences
CAUSES = (
    "link-not-followed",
    "unreadable",
    "log-missing",
    "foreign-file",
    "queue-in-both-folders",
    "file-length",
    "file-gap",
    "file-overlap",
)
BIT_FLIP_BUDGET = 16 * 1024 * 1024
# yields the log's items in order; with a request builder, each RecordRun has DispatchColumns or a CheckedRun
Scan = Callable[[ScanSummary, DispatchRequestBuilder | None], Iterator[ScanItem | RecordRun]]


@dataclass
class VerifyReport:
    """The result of a verification."""

    level: int
    summary: ScanSummary
    min_phy_offset: int  # bytes
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of the scan
    # messages that `recover --keep-going` wrote in place of lost ones; None: not counted (level 1)
    placeholders: int | None = None
    broker_stops_at: int | None = None  # bytes
    behind_damage_messages: int = 0  # good ones, after the first damage that ends a broker's scan
    behind_damage_bytes: int = 0
    # the damage that a restart now reaches; None: no damage ends a scan, or not known
    restart_now: RestartReach | None = None
    lacks_config: bool = False  # topics, groups or offsets are in a database that was not read
    not_read: list[StorePart] = field(default_factory=list)  # what lies in the store's folder, and no level reads

    @property
    def incomplete(self) -> bool:
        """Whether a part of the store could not be read."""
        is_incomplete = self.summary.incomplete or self.lacks_config
        return is_incomplete or any(finding.code in UNREADABLE for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `verify -o json`."""
        return {
            "level": self.level,
            "records": self.summary.records,
            "messages": self.summary.messages,
            "blanks": self.summary.blanks,
            "placeholders": self.placeholders,
            "bytesScanned": self.summary.bytes_scanned,
            "okUpTo": self.summary.ok_up_to,
            "minPhyOffset": self.min_phy_offset,
            "maxPhyOffset": self.summary.end,
            "stopped": self.summary.stopped,
            "seconds": round(self.seconds, 6),
            "behindDamage": {
                "offset": self.broker_stops_at,
                "records": self.behind_damage_messages,
                "bytes": self.behind_damage_bytes,
            },
            "restartNow": self.restart_now and self.restart_now.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "notLookedAt": [one.path for one in self.not_read],
            "notes": self.notes,
        }


def verify(store: ReadOnlyStore, level: int = LEVEL_ALL, threads: int = 1) -> VerifyReport:
    """Verify a store at `level`, without changing the store."""
    verification = Verification(store, level, threads)
    verification.run()
    return verification.report


class Verification:
    """One verification: the scan, the audits of its messages, and the report.

    `scan` scans the log; without it, `threads` threads do. If `scan` lets others compare the index with parts of the
    log, `index_parts` returns what they found, after the scan. `report` can be read while the verification runs. With
    `receipts`, a log file with a receipt of `rmqctl clean` does not count as missing.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        level: int = LEVEL_ALL,
        threads: int = 1,
        scan: Scan | None = None,
        *,
        index_parts: Callable[[DispatchRequestBuilder], list[IndexPart]] | None = None,
        receipts: bool = True,
    ) -> None:
        self.report = VerifyReport(level, ScanSummary(), store.commit_log.min_offset)
        self._store = store
        self._scan = scan or partial(_scan_here, store, threads)
        self._builder = DispatchRequestBuilder(with_keys=level >= LEVEL_ALL, with_tags=True)
        self._receipts = receipts
        self._level = level if store.commit_log.queue.files else 0
        if level >= LEVEL_QUEUES:
            store.check_database()
        self._queues: QueueCrosscheck | None = None
        self._index_parts = index_parts if self._level >= LEVEL_ALL else None
        self._index: IndexAudit | None = None
        self._database: DatabaseIndexAudit | None = None
        self._stored = RunSummary(0, 0, 0, 0)  # of all good messages
        self._tally = DamageTally()
        self._rejected = RejectedMessages(store.commit_log)
        self.of_timers: list[Finding] = []  # level 3
        self._bit_flip_budget = BIT_FLIP_BUDGET
        self._shift: int | None = None

    @property
    def last_stored(self) -> int:
        """The store time of the last message, in ms, or 0 if not known."""
        return self._stored.last

    @property
    def missed(self) -> Mapping[QueueKey, int]:
        """For each queue, how many messages of the log have no unit."""
        return self._queues.by_queue.missed if self._queues is not None else {}

    @property
    def beside_number(self) -> Sequence[tuple[QueueKey, int, int]]:
        """The messages whose place in a light queue has another message."""
        return self._queues.beside_number if self._queues is not None else ()

    def warm_up(self) -> None:
        """Compile or load the kernels, unless the store is small.

        They are compiled only by the first run on a machine, which takes some seconds.
        """
        modules = (scan, dispatch_scan, cq_unit_compare, index_match)[: 2 * self._level - 1 or 1]
        size = self._store.commit_log.queue.allocated
        if self._level >= LEVEL_ALL:
            _, index = self._store.queues, self._store.index  # in the order in which `run` reads them
            size += index.allocated
        warm_up(*modules, size=size)

    def run(self) -> None:
        """Check the log, then queues and index, then the small files.

        The report lists causes before their consequences.
        """
        self.warm_up()
        started = time.perf_counter()
        with self._store.storage.keeping_small_files():
            self._check_log()
        self.report.seconds = time.perf_counter() - started
        self._restart_now()
        self._beside_the_log()
        self.report.lacks_config = self._store.lacks_config
        self.report.not_read = not_read(self._store)
        self.report.findings += [
            Finding(damage.code, damage.path, None, damage.detail) for damage in self._store.foreign
        ]
        # several audits may have read the same database
        told = {str(one) if one.code == "unreadable" else id(one): one for one in self.report.findings}
        self.report.findings = sorted(
            told.values(),
            key=lambda finding: CAUSES.index(finding.code) if finding.code in CAUSES else len(CAUSES),
        )

    def _check_log(self) -> None:
        self._queues = QueueCrosscheck(self._store, self._builder) if self._level >= LEVEL_QUEUES else None
        if self._level >= LEVEL_ALL and self._index_parts is None:
            self._index = IndexAudit(self._store, self._builder)
            self._database = self._database_audit()
        self.report.placeholders = 0 if self._queues else None
        for item in self._scan(self.report.summary, self._builder if self._queues else None):
            if isinstance(item, Damage):
                self._damage(item)
            elif isinstance(item, RecordRun):
                self._good(item.messages, item.size, item.result)
            elif isinstance(item, Message):
                self._good(1, item.size, self._builder.of(item) if self._queues else None)
        if self._queues:
            self._queues.finish(self.report.summary.end)
            self.report.findings += self._queues.findings
            self.report.findings += audit_queue_database(self._store)
            self.report.notes += self._queues.notes
        parts = self._index_parts(self._builder) if self._index_parts else []
        index = IndexFindings(self._store, [*parts, self._index.finish()] if self._index else parts)
        self.report.findings += index.findings
        self.report.notes += index.notes()
        if self._database:
            self.report.findings += self._database.finish()
            self.report.notes += self._database.notes()

    def _database_audit(self) -> DatabaseIndexAudit | None:
        try:
            database = self._store.index.database or index_database(self._store.path)
            is_used = database is not None or self._store.conf.index_in_database
            return DatabaseIndexAudit(self._store, database) if is_used else None
        except OSError as error:
            detail = f"cannot be read: {error.strerror}"
            self.report.findings.append(Finding("unreadable", SIGN_OF_5_4, None, detail))
            return None

    def _restart_now(self) -> None:
        codes = {finding.code for finding in self.report.findings}
        if self.report.broker_stops_at is None and not codes & ENDS_SOME_LOGS:
            return
        try:
            self.report.restart_now = self._tally.reach(self._store)
        except OSError as error:
            self.report.notes.append(f"whether a restart now reaches the damage is unknown: {error}")

    def _beside_the_log(self) -> None:
        holder = self._store.lock_holder()
        if holder is not None:
            self.report.notes.append(
                f"a broker, or another rmqctl (pid {holder}), has the store open: its end moves while we read"
            )
        self.report.findings += state_audit.audit_journals(self._store)
        if not self._store.commit_log.queue.files:
            self.report.findings += state_audit.audit_log_missing(self._store)
        if self._store.commit_log.has_entries:
            self._dledger()
        if self._queues is None or self._level < LEVEL_ALL:
            return
        self.report.findings += state_audit.audit_abort(self._store)
        end = self._store.commit_log.queue.end
        checkpoint = list(state_audit.audit_checkpoint(self._store, self._stored.newest, self._stored.last, end))
        if checkpoint and is_as_written(self._store.storage, self._store.path.root, CHECKPOINT_VERB, [CHECKPOINT]):
            self.report.notes.append("the checkpoint has the values that `rmqctl checkpoint set` gave it")
            checkpoint = [finding for finding in checkpoint if finding.code != "checkpoint-behind"]
        self.report.findings += checkpoint
        self.report.findings += state_audit.audit_config(self._store)
        self.report.findings += audit_databases(self._store)
        self._timers()
        self.report.findings += self._audited(lambda: audit_compaction(self._store, self.missed))
        self.report.findings += self._audited(lambda: audit_database_rows(self._store))
        self.report.findings += state_audit.audit_controller_files(self._store, end)
        self._log_start(self._queues.expired_units, self._queues.spanning_units)

    def _dledger(self) -> None:
        try:
            self.report.findings += state_audit.audit_dledger(self._store)
            self.report.findings += state_audit.audit_committed(self._store)
            if self._level >= LEVEL_ALL:
                self.report.notes += state_audit.notes_of_entry_index(self._store)
        except OSError as error:
            self.report.findings.append(self._unreadable(error))

    def _timers(self) -> None:
        if any(finding.topic == TIMER_TOPIC for finding in self.report.findings):
            return  # what is wrong with the timer's queue comes first
        self.of_timers = self._audited(lambda: audit_timers(self._store, self._stored.newest))
        self.report.findings += [finding for finding in self.of_timers if finding.code != REPEATED]

    def _audited(self, audit: Callable[[], Iterable[Finding]]) -> list[Finding]:
        try:
            return list(audit())
        except OSError as error:
            return [self._unreadable(error)]

    def _unreadable(self, error: OSError) -> Finding:
        path = self._store.storage.display(Path(error.filename or self._store.path.root))
        return Finding("unreadable", path, None, f"cannot be read: {error.strerror}")

    def _log_start(self, expired: int, spanning: int) -> None:
        # a receipt of `rmqctl clean` can explain the start, but whoever writes to the store can forge one
        missing = list(state_audit.audit_log_start(self._store, self._stored.oldest, self._stored.newest, spanning))
        units = f"{counted(expired, 'queue unit')} before the log's first file"
        if expired and not missing:
            why = "expired, or deleted by `rmqctl clean`" if spanning else "of queues without a message in the log"
            self.report.notes.append(f"{units}: {why}")
        elif missing and self._is_receipt_believed():
            missing = []
            self.report.notes.append(
                f"{units}: deleted by `rmqctl clean`, as a receipt in the store says ({RECEIPTS_NAME}). The receipt "
                "came with the store, "
                "and anyone who could write to the store may have forged it: --ignore-receipts verifies without it"
            )
        self.report.findings += missing

    def _is_receipt_believed(self) -> bool:
        # no receipt is believed if the receipts cannot be read
        if not self._receipts:
            return False
        try:
            found = state_audit.receipts(self._store)
        except OSError as error:
            self.report.findings.append(Finding("unreadable", RECEIPTS_NAME, None, f"cannot be read: {error.strerror}"))
            return False
        if found.ignored:
            lines = counted(len(found.ignored), "line")
            self.report.notes.append(
                f"ignored in the receipts of `rmqctl clean`: {lines} of another form, the first is {found.ignored[0]}"
            )
        return found.is_cleaned

    def _good(self, messages: int, size: int, described: DispatchColumns | CheckedRun | None) -> None:
        self._tally.good(messages, size)
        if self.report.broker_stops_at is not None:
            self.report.behind_damage_messages += messages
            self.report.behind_damage_bytes += size
        if described is None:
            return
        if isinstance(described, DispatchColumns):
            summary, rows = summary_of(described.messages), described.messages
            if self._queues:
                self._queues.on_messages(rows)
            if self._index:
                self._index.on_messages(described)
                if self._database:
                    self._database.on_messages(described)
        else:
            summary, rows = described.summary, described.rest
            if self._queues:
                self._queues.on_checked(described)
        self._stored = self._stored.with_next(summary)
        self.report.placeholders = self._stored.placeholders
        self.report.findings += self._rejected.find(rows)

    def _damage(self, damage: Damage) -> None:
        if not self._is_more_of_the_same(damage):
            self.report.findings.append(self._finding(damage))
        self._tally.damage(damage)
        if self.report.broker_stops_at is None and not self._is_overlooked(damage):
            self.report.broker_stops_at = damage.physical_offset
        described = self._queues.damage(damage) if self._queues else None
        if self._index and described is not None:
            self._index.on_messages(described)
            if self._database:
                self._database.on_messages(described)

    def _is_overlooked(self, damage: Damage) -> bool:
        # whether a broker's scan that begins at the first log file goes on behind the damage
        if self._store.commit_log.has_entries:
            return damage.code not in DLEDGER_STOPS_AT
        return damage.code in UNCHECKED or is_empty_body(damage)

    def _finding(self, damage: Damage) -> Finding:
        log = self._store.commit_log
        file = log.queue.find(damage.physical_offset)
        path = damage.path or log.path_of(damage.physical_offset)
        finding = of_damage(damage, path, file.file_from_offset if file else damage.physical_offset)
        if file is not None and damage.message is not None:
            finding.detail += _message_words(damage.message)
            if self._bit_flip_budget > 0:
                self._bit_flip_budget -= damage.size
                finding.detail += _bit_flip_words(file, damage)
        return finding

    def _is_more_of_the_same(self, damage: Damage) -> bool:
        # add a record to the last finding if it follows directly, with the same PHYSICALOFFSET error
        shift_before, self._shift = self._shift, None
        if damage.code == "bad-physical-offset" and damage.message is not None:
            self._shift = damage.message.stored_physical_offset - damage.physical_offset
        before = self.report.findings[-1] if self.report.findings else None
        if before is None or self._shift is None or self._shift != shift_before:
            return False
        if (
            before.size is None
            or before.physical_offset is None
            or before.physical_offset + before.size != damage.physical_offset
        ):
            return False
        before.count += 1
        before.size += damage.size
        return True


def _scan_here(
    store: ReadOnlyStore, threads: int, summary: ScanSummary, builder: DispatchRequestBuilder | None
) -> Iterator[ScanItem | RecordRun]:
    return store.commit_log.scan_columns(summary, builder.take if builder else None, threads=threads)


def is_empty_body(damage: Damage) -> bool:
    """Return whether the damage is a wrong BODYCRC of an empty body.

    Brokers do not check it.
    """
    return damage.code == "bad-body-crc" and damage.message is not None and not damage.message.body


def _message_words(message: Message) -> str:
    found = message.properties
    unique = f", UNIQ_KEY {found[properties.UNIQ_KEY]}" if properties.UNIQ_KEY in found else ""
    keys = f", KEYS {found[properties.KEYS]}" if properties.KEYS in found else ""
    return f"; the message is {message.topic}/{message.queue_id} at queue offset {message.queue_offset}{unique}{keys}"


def _bit_flip_words(file: MappedFile, damage: Damage) -> str:
    # name each single flipped bit, of the data or of the checksum, that explains a wrong checksum
    if damage.message is None or damage.code not in ("bad-body-crc", "bad-property-crc"):
        return ""
    start = damage.physical_offset - file.file_from_offset
    stored: int | None = damage.message.body_crc
    at = start + head_of(file.read(start, HEAD_SIZE_MAX)).size
    data: bytes | memoryview = damage.message.body
    if damage.code == "bad-property-crc":
        at, data = start, file.read(start, damage.size - crc.PROPERTY_CRC_SIZE)
        stored = crc.stored_property_crc(damage.message.properties_bytes)
    if stored is None:
        return ""
    right = crc.masked_crc32(data)
    changed = stored ^ right
    if damage.code == "bad-property-crc":  # its bits are those of ten decimal digits
        changed = int.from_bytes(crc.property_crc_value(stored)) ^ int.from_bytes(crc.property_crc_value(right))
    words = ["the stored checksum differs in one bit"] if changed.bit_count() == 1 else []
    flips = [(at + flip.position, flip.bit) for flip in find_bit_flips(data, stored)]
    places = [
        f"bit {bit} of the byte at {file.file_from_offset + position} (byte {position} of the file)"
        for position, bit in flips
    ]
    words += [f"one flipped bit explains it: {', or '.join(places)}"] if places else []
    return f"; {', or '.join(words)}" if words else ""
