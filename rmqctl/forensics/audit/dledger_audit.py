"""The audit of a DLedger log against the index that its group has agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.store.dledger.dledger_checkpoint import committed_index
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore


def audit_committed(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if entries are gone that the DLedger group has agreed on."""
    folder, (end, index) = store.path.entries_in, store.commit_log.last_entry()
    committed = committed_index(store.storage, folder.parent) if folder is not None else None
    if committed is not None and index < committed:
        missing = counted(committed - index, "entry", "entries")
        detail = (
            f"the group has agreed on entry {committed}, the log ends at {end} with entry {index}: {missing} missing"
        )
        yield Finding("entries-missing", store.commit_log.path_of(end), end, detail, count=committed - index)
