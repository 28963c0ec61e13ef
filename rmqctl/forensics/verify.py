"""Is the store whole? Level 1: the log. Level 2: and its queues. Level 3: and index, checkpoint, configuration."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqctl.forensics import state_audit
from rmqctl.forensics.bit_flip import find_bit_flip
from rmqctl.forensics.crosscheck import QueueCrosscheck
from rmqctl.forensics.finding import Finding, of_damage
from rmqctl.forensics.index_audit import IndexAudit
from rmqctl.format import crc, properties
from rmqctl.format.damage import Damage
from rmqctl.format.message import HEAD_SIZE_MAX, Message, head_of
from rmqctl.store.commit_log import UNREADABLE, ScanSummary

if TYPE_CHECKING:
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read_only_store import ReadOnlyStore

LEVEL_LOG, LEVEL_QUEUES, LEVEL_ALL = 1, 2, 3
BROKER_OVERLOOKS = frozenset(
    {"bad-physical-offset", "bad-property-crc", "torn-properties", "bad-blank-size", "file-overlap", "bytes-behind-end", "file-length"}
)


@dataclass
class VerifyReport:
    """What verify found. Offsets in bytes; `seconds` is the scan alone.

    `behind_damage` counts the good messages and their bytes behind the first damage at which a broker's scan ends the log.
    """

    level: int
    summary: ScanSummary
    min_phy_offset: int
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    broker_stops_at: int | None = None
    behind_damage_messages: int = 0
    behind_damage_bytes: int = 0

    @property
    def incomplete(self) -> bool:
        """Whether some input could not be read."""
        return self.summary.incomplete or any(finding.code in UNREADABLE for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The document of `verify -o json`."""
        return {
            "level": self.level,
            "records": self.summary.records,
            "messages": self.summary.messages,
            "blanks": self.summary.blanks,
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
            "findings": [finding.to_json() for finding in self.findings],
            "notes": self.notes,
        }


def verify(store: ReadOnlyStore, level: int = LEVEL_ALL) -> VerifyReport:
    """Verify a store at `level`. Reads everything, changes nothing."""
    report = VerifyReport(level, ScanSummary(), store.commit_log.min_offset)
    started = time.perf_counter()
    run = _Run(store, report, level)
    run.scan()
    report.seconds = time.perf_counter() - started
    run.beside_the_log()
    report.findings += [_foreign_finding(damage) for damage in store.foreign]
    holder = store.lock_holder()
    if holder is not None:
        report.notes.append(f"a broker (pid {holder}) has the store open: its end moves while we read")
    return report


class _Run:
    """One verification: the scan, and the audits that listen to it."""

    def __init__(self, store: ReadOnlyStore, report: VerifyReport, level: int) -> None:
        self._store = store
        self._report = report
        self._level = level
        self._queues = QueueCrosscheck(store) if level >= LEVEL_QUEUES else None
        self._index = IndexAudit(store) if level >= LEVEL_ALL else None
        self._oldest = 0
        self._newest = 0
        self._last = 0

    def scan(self) -> None:
        """The log, record by record; each goes to the audits."""
        for item in self._store.commit_log.scan(self._report.summary):
            if isinstance(item, Damage):
                self._damage(item)
            elif isinstance(item, Message):
                self._message(item)
        if self._queues:
            self._queues.finish(self._report.summary.end)
            self._report.findings += self._queues.findings
            self._report.notes += self._queues.notes
        if self._index:
            self._index.finish()
            self._report.findings += self._index.findings

    def beside_the_log(self) -> None:
        """Abort, checkpoint, configuration, and a missing start of the log."""
        if not self._store.commit_log.queue.files and self._store.queues:
            self._report.findings.append(Finding("log-missing", "commitlog", None, "no commit log file, but queues"))
        if self._level < LEVEL_ALL or self._queues is None:
            return
        try:
            self._report.findings += state_audit.audit_abort(self._store)
            self._report.findings += state_audit.audit_checkpoint(self._store, self._newest, self._last)
            self._report.findings += state_audit.audit_config(self._store)
        except OSError as error:
            self._unreadable(error)
        expired = self._queues.expired_units
        self._report.findings += state_audit.audit_log_start(self._store, self._oldest, self._newest, expired)

    def _message(self, message: Message) -> None:
        self._oldest = self._oldest or message.store_timestamp
        self._newest = max(self._newest, message.store_timestamp)
        self._last = message.store_timestamp
        if self._report.broker_stops_at is not None:
            self._report.behind_damage_messages += 1
            self._report.behind_damage_bytes += message.size
        self._tell(message)

    def _tell(self, message: Message) -> None:
        if self._queues:
            self._queues.see(message)
        if self._index:
            self._index.see(message)

    def _damage(self, damage: Damage) -> None:
        log = self._store.commit_log
        file = log.queue.find(damage.physical_offset)
        path = damage.path or log.path_of(damage.physical_offset)
        finding = of_damage(damage, path, file.file_from_offset if file else damage.physical_offset)
        if file is not None and damage.message is not None:
            finding.detail += _message_words(damage.message) + _bit_flip_words(file, damage)
        self._report.findings.append(finding)
        if self._report.broker_stops_at is None and damage.code not in BROKER_OVERLOOKS:
            self._report.broker_stops_at = damage.physical_offset
        if damage.message is not None and damage.message.stored_physical_offset == damage.physical_offset:
            self._tell(damage.message)
        elif self._queues:
            self._queues.lost(damage)

    def _unreadable(self, error: OSError) -> None:
        self._report.findings.append(Finding("unreadable", str(error.filename or ""), None, f"cannot be read: {error.strerror}"))


def _foreign_finding(damage: Damage) -> Finding:
    return Finding(damage.code, damage.path, None, damage.detail)


def _message_words(message: Message) -> str:
    found = message.properties
    unique = f", UNIQ_KEY {found[properties.UNIQ_KEY]}" if properties.UNIQ_KEY in found else ""
    keys = f", KEYS {found[properties.KEYS]}" if properties.KEYS in found else ""
    return f"; the message is {message.topic}/{message.queue_id} at queue offset {message.queue_offset}{unique}{keys}"


def _bit_flip_words(file: MappedFile, damage: Damage) -> str:
    """Where a single flipped bit explains a checksum: in the data, or in the checksum itself."""
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
    if (crc.masked_crc32(data) ^ stored).bit_count() == 1:
        return "; the stored checksum differs in one bit"
    flip = find_bit_flip(data, stored)
    if flip is None:
        return ""
    position = at + flip.position
    return f"; one flipped bit explains it: bit {flip.bit} of the byte at {file.file_from_offset + position} (byte {position} of the file)"
