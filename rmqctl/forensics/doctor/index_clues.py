"""Clues about the log in the findings of the index.

If bits of a record's keys change, the index has two findings about the record: an entry with a key that the record does
not have, and no entry for a key that the record has. If bits of an entry change instead, the chains of the index file
also have findings, because a chain depends on the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.forensics.finding import Finding

DANGLING, MISSING = "index-dangling", "index-missing"
FEW = 2  # if more records have other keys, no bits were flipped: the index file is of another log


def other_keys(of_index: Sequence[Finding]) -> list[Finding]:
    """Return the findings on records whose keys have probably changed."""
    inconsistent = {finding.path for finding in of_index if finding.code not in (DANGLING, MISSING)}
    pairs = {
        code: {
            finding.physical_offset
            for finding in of_index
            if finding.code == code and finding.path not in inconsistent and finding.physical_offset is not None
        }
        for code in (DANGLING, MISSING)
    }
    changed = pairs[DANGLING] & pairs[MISSING]
    if len(changed) > FEW:
        return []
    return [finding for finding in of_index if finding.physical_offset in changed]
