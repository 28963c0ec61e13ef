"""The damaged records of a store, and which of them come back."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.witness.examine import Examination
from rmqctl.forensics.witness.usual import Usual
from rmqctl.store.read.commit_log import NO_BLANK, NOT_READ, ScanSummary
from rmqctl.text import part_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rmqctl.forensics.finding import Finding
    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.format.message import Damage
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SUSPECTS_MAX = 10_000  # records; more are no flipped bits, but a queue or an index of another log
OFFERED_MAX = 64  # of them, for what only says that `heal` can help
RECORDS_MAX = 100_000  # of the log; what only says that `heal` can help reads no longer one: it takes 4 s
DAMAGES_SHOWN = 16
# findings that a changed bit of a record can cause
CODES_OF_RECORDS = frozenset({
    "bad-port", "bad-compression", "bad-queue-offset", "missing-unit", "unit-mismatch", "unit-tags-code",
    "index-dangling", "index-missing", "index-time",
})  # fmt: skip
# damage in which no record of the log lies
NO_RECORD = frozenset({"bytes-behind-end", NO_BLANK, *NOT_READ})


class Diagnosis(NamedTuple):
    """The damaged records of a store, and what examines them."""

    examination: Examination
    usual: Usual
    damages: list[Damage]
    end: int  # of the last whole record


def diagnose(
    store: ReadOnlyStore,
    findings: Sequence[Finding],
    suspects_max: int = SUSPECTS_MAX,
    *,
    accept_single_bit: bool = False,
    left_out: Collection[str] = NO_RECORD,
) -> Diagnosis:
    """Read the log of a store; `findings` are those of `verify`.

    Damage with a code in `left_out` is not examined. Raises OSError.
    """
    usual = Usual(_suspects(findings, suspects_max), store.queue_topics.union(store.listed_topics))
    summary = ScanSummary()
    damages = [damage for damage in usual.read(store.commit_log.scan(summary)) if damage.code not in left_out]
    return Diagnosis(Examination(store, usual, accept_single_bit=accept_single_bit), usual, damages, summary.end)


def notes_of_repairable(store: ReadOnlyStore, report: VerifyReport) -> Iterator[str]:
    """Yield a note that names the first damaged records that `heal` brings back.

    Nothing of a log that would take long, nor while a broker has the store open. Raises OSError.
    """
    if not report.summary.damages or report.summary.records > RECORDS_MAX or store.lock_holder() is not None:
        return
    examination, _, damages, _ = diagnose(store, report.findings)
    first = [*islice(damages, DAMAGES_SHOWN)]
    examination.find_copies(first)
    verdicts = (examination.examine(one.physical_offset, None if one.message else one.end) for one in first)
    exact = [str(one.physical_offset) for one in verdicts if one is not None and one.is_exact]
    if exact:
        which = part_of(len(exact), len(first), "damaged record") + (" looked at" if len(damages) > len(first) else "")
        yield f"repairable: exact: {which} (at {', '.join(exact)}); `rmqctl heal --dry-run` shows by what"


def _suspects(findings: Sequence[Finding], most: int) -> set[int]:
    places = {
        finding.physical_offset
        for finding in findings
        if finding.code in CODES_OF_RECORDS and finding.physical_offset is not None and finding.count == 1
    }
    return places if len(places) <= most else set()
