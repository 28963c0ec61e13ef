"""Clues about the log in the findings of several queues.

One record that names a wrong queue gives findings in two queues. One whose tags changed gives a unit with another tags
code, which is otherwise right. One log file that comes from another log gives findings in all queues.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqctl.forensics.doctor.store_facts import StoreFacts
    from rmqctl.forensics.finding import Finding
    from rmqctl.store.config.topics import QueueKey

MISMATCH, MISSING, TAGS_CODE = "unit-mismatch", "missing-unit", "unit-tags-code"
FEW = 2  # more records are no flipped bits: the files of two queues were swapped, or a queue's units are damaged
MANY_QUEUES = 3
INDEX_DANGLING, INDEX_MISSING = "index-dangling", "index-missing"


def misnamed_records(of_queue: Mapping[QueueKey, list[Finding]]) -> dict[int, list[tuple[QueueKey, Finding]]]:
    """Return the findings on records that name a wrong queue, by physical offset.

    The unit for such a record is in another queue. Each finding comes with its queue.
    """
    places: dict[int, list[tuple[QueueKey, Finding]]] = {}
    for key, findings in of_queue.items():
        for finding in findings:
            if finding.code in (MISMATCH, MISSING) and finding.count == 1 and finding.physical_offset is not None:
                places.setdefault(finding.physical_offset, []).append((key, finding))
    claimed = {
        at: found
        for at, found in places.items()
        if len({key for key, _ in found}) > 1 and any(finding.code == MISMATCH for _, finding in found)
    }
    pairs = Counter(frozenset(key for key, _ in found) for found in claimed.values())
    return {at: found for at, found in claimed.items() if pairs[frozenset(key for key, _ in found)] <= FEW}


def with_other_tags(of_queue: Mapping[QueueKey, list[Finding]]) -> set[QueueKey]:
    """Return the queues in which only a few tags codes are wrong.

    The tags of the record may have changed, or the tags code in the unit: nothing in the store tells which.
    """
    return {
        (topic, queue_id)
        for (topic, queue_id), findings in of_queue.items()
        if topic != SCHEDULE_TOPIC
        and all(finding.code == TAGS_CODE for finding in findings)
        and sum(finding.count for finding in findings) <= FEW
    }


def replaced_file(of_queue: Mapping[QueueKey, list[Finding]], facts: StoreFacts) -> str | None:
    """Return the log file that does not match the units of several queues, or None.

    None if the findings point into several log files, or if the store has too few log files, or too few queues that do
    not match the log.
    """
    mismatched = [key for key, findings in of_queue.items() if any(found.code == MISMATCH for found in findings)]
    offsets = [found.physical_offset for findings in of_queue.values() for found in findings]
    files = {facts.file_of(offset) for offset in offsets if offset is not None}
    if len(mismatched) < MANY_QUEUES or len(files) != 1 or len(facts.log_files) < MANY_QUEUES:
        return None
    return files.pop()


def other_keys(of_index: Sequence[Finding]) -> list[Finding]:
    """Return the findings on records whose keys have probably changed.

    If bits of a record's keys change, the index has two findings about it: an entry with a key that the record does not
    have, and no entry for a key that it has. If bits of an entry change instead, the chains of the index file also have
    findings, because a chain depends on the key.
    """
    inconsistent = {finding.path for finding in of_index if finding.code not in (INDEX_DANGLING, INDEX_MISSING)}
    pairs = {
        code: {
            finding.physical_offset
            for finding in of_index
            if finding.code == code and finding.path not in inconsistent and finding.physical_offset is not None
        }
        for code in (INDEX_DANGLING, INDEX_MISSING)
    }
    changed = pairs[INDEX_DANGLING] & pairs[INDEX_MISSING]
    if len(changed) > FEW:
        return []
    return [finding for finding in of_index if finding.physical_offset in changed]
