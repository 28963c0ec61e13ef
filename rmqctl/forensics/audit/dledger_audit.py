"""Audits of what DLedger keeps beside its log: its index, and its checkpoint.

`dledger-ID/checkpoint` has the lines `committedIndex=N` and `endIndex=N`: the last entry that the group has agreed on,
and the last one that the node has; -1 before the first entry. DLedger writes it every few seconds, so a good log ends
at `committedIndex` or later. DLedger reads committedIndex alone, and does without the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.store.recovery.dledger_start import (
    committed_index,
    entry_files,
    recover_entries,
    small_refusal,
    units_wrong,
)
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


def audit_dledger(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings on files of DLedger with which no broker starts."""
    refusal = small_refusal(store)
    if refusal is not None:
        path, _, detail = refusal.partition(" ")
        yield Finding("dledger-refused", path, None, f"{detail}: no broker starts")


def audit_committed(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if entries are gone that the DLedger group has agreed on."""
    (end, index), committed = store.commit_log.last_entry(), committed_index(store)
    if index < committed:
        missing = counted(committed - index, "entry", "entries")
        detail = (
            f"the group has agreed on entry {committed}, the log ends at {end} with entry {index}: {missing} missing"
        )
        yield Finding("entries-missing", store.commit_log.path_of(end), end, detail, count=committed - index)


def notes_of_entry_index(store: ReadOnlyStore) -> Iterator[str]:
    """Yield a note if units of DLedger's index differ from their entries.

    Brokers serve the messages all the same. Raises OSError.
    """
    wrong, first = units_wrong(store) if entry_files(store) else (0, 0)
    if not wrong:
        return
    found = recover_entries(store)
    if found.refused is not None:
        return
    then = "no start writes it anew"
    if found.rewritten_from is not None:
        then = f"a start writes it anew from entry {found.rewritten_from} on"
    yield (
        f"DLedger's own index has no unit, or another one, for {counted(wrong, 'entry', 'entries')}, first for entry "
        f"{first}: brokers serve the messages all the same, and {then}"
    )
