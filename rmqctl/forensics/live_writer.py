"""Verify a store that a broker, or `rmqctl append`, writes meanwhile.

A writer stores a message first, and gives it a unit and index entries later. So the last messages seem to have no unit,
and the last record may be cut. A second look does not find that again, or only after the last dispatched message.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.audit.databases.database_index import DANGLING, MISSING
from rmqctl.forensics.verify import Verification
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.config.store_path import CHECKPOINT
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rmqctl.forensics.finding import Finding
    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SECONDS_BETWEEN = 0.5  # a dispatch takes milliseconds
_DEPENDS_ON_DISPATCH = frozenset(
    {"missing-unit", "index-missing", "dangling-unit", "unit-lost-message", "index-dangling", DANGLING}
)
_OF_RECORDS = frozenset(
    {
        "bad-magic", "bad-size", "bad-length", "bad-body-crc", "bad-property-crc", "bad-physical-offset", "no-blank",
        "torn-properties", "bytes-behind-end",
    }
)  # fmt: skip


class _Ends(NamedTuple):
    log: int = OFFSET_MAX
    dispatched: int = OFFSET_MAX
    in_database: int = OFFSET_MAX  # the last message whose row is on the disk: a broker writes rows after minutes


def verify_beside_writer(verification: Verification, store: ReadOnlyStore, level: int, threads: int) -> None:
    """Run a verification, and leave out findings on what a writer has not finished.

    Without a writer, this only runs the verification. With one, and with findings, the store is read twice: what the
    second look does not find was only not finished. Raises OSError.
    """
    verification.run()
    report, holder = verification.report, store.lock_holder()
    if not report.findings or (holder is None and not _is_written(store)):
        return
    time.sleep(SECONDS_BETWEEN)
    holder = store.lock_holder()
    second_store = store.opened_again()
    try:
        second = Verification(second_store, level, threads)
        second.run()
        ends = _ends(second_store, second.report) if holder is not None else _Ends()
    finally:
        second_store.close()
    known = {_key(one) for one in second.report.findings}
    left: list[Finding] = []
    gone: list[Finding] = []
    for one in report.findings:
        (left if _key(one) in known and not _is_unfinished(one, ends) else gone).append(one)
    report.findings = left
    if gone:
        count = counted(sum(one.count for one in gone), "place")
        report.notes.append(f"{count} were not finished at the first look: the store was written meanwhile")
    if report.broker_stops_at is not None and report.broker_stops_at in {one.physical_offset for one in gone}:
        report.broker_stops_at, report.restart_now = None, None
        report.behind_damage_messages = report.behind_damage_bytes = 0


def _is_written(store: ReadOnlyStore) -> bool:
    """Return whether the log or the checkpoint was written since the opening."""
    files = store.opened_again().commit_log.queue.files
    paths = [*(file.path for file in files[-1:]), store.path.part(CHECKPOINT)]
    return any(store.storage.entry(path).mtime > store.opened_at for path in paths)


def _ends(store: ReadOnlyStore, report: VerifyReport) -> _Ends:
    """Return the ends of a store that a writer holds. Raises OSError."""
    units = (queue.last() for queue in store.queues.values())
    dispatched = max((unit.physical_offset + 1 for unit in units if unit is not None), default=0)
    database = store.index.database
    return _Ends(report.summary.end, dispatched, database.span[1] if database is not None else 0)


def _is_unfinished(finding: Finding, ends: _Ends) -> bool:
    """Return whether a finding of both looks is on the end of a growing log."""
    at = finding.physical_offset
    if at is None:
        return False
    if finding.code == MISSING:
        return at >= ends.in_database
    if finding.topic is None and finding.code in _OF_RECORDS:
        return at >= ends.dispatched and at + (finding.size or 1) >= ends.log
    return finding.code in _DEPENDS_ON_DISPATCH and at >= ends.dispatched


def _key(finding: Finding) -> Hashable:
    at = finding.physical_offset
    return finding.code, finding.path, finding.queue_offset, at, finding.detail if at is None else ""
