"""Golden stores, damaged and mended by placeholder records alone: nothing but the log is written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rmqctl.format.message import BLANK_SIZE, Blank, Damage, Message
from rmqctl.operations.placeholder.pieces import PlaceholderRecord, Span, placeholder_records
from rmqctl.operations.placeholder.record import Claim, least_size, placeholder_message, sign_size, surroundings
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.file_edits import overwrite


class Mended(NamedTuple):
    """What was written, and the claims of the queues that came to nothing."""

    records: list[PlaceholderRecord]
    dropped: list[Claim]


class Owed(NamedTuple):
    """A queue offset that neither the log nor its queue has, and the records of the queue around it
    (physical offsets).
    """

    claim: Claim
    behind: int
    before: int


def mend(root: Path, *, long_topics: bool = True) -> Mended:
    """Write placeholders over all damage of the log that whole records follow, as a plan by the units of the queues
    says.
    """
    store = ReadOnlyStore(root)
    items = [
        item for item in store.commit_log.scan() if not (isinstance(item, Damage) and item.code == "bytes-behind-end")
    ]
    claims = _claims(store)
    owed = _owed(items, claims)
    mended = Mended([], [])
    for span, damage in _spans(store, items):
        if damage.message is not None:
            mended.records.append(
                PlaceholderRecord(span.begin, damage.size, placeholder_message(damage.message, damage.code))
            )
            continue
        before = next(
            (found for found in reversed(items) if isinstance(found, Message) and found.end <= span.begin), None
        )
        after = next(
            (found for found in items if isinstance(found, Message) and found.physical_offset >= span.end), None
        )
        of_span = [claim for claim in claims if span.begin <= claim.physical_offset < span.end]
        possible = [missing for missing in owed if missing.behind < span.end and missing.before > span.begin]
        around = surroundings(before, after, long_topics=long_topics)
        for missing in possible:
            size = least_size((missing.claim,), around) + 1 + sign_size(damage.code)
            if _in_free_room(of_span, missing.claim, size, span):
                owed.remove(missing)
        plan = placeholder_records(span, of_span, damage.code, around)
        mended.records.extend(plan.records)
        mended.dropped.extend(plan.dropped)
    mended.dropped.extend(missing.claim for missing in owed)
    for record in mended.records:
        overwrite(root, record.physical_offset, record.data)
    return mended


def _in_free_room(claims: list[Claim], owed: Claim, size: int, span: Span) -> bool:
    """Add the claim to those of the range, where its queue's order and their sizes leave room; return whether."""
    same = [claim for claim in claims if claim[:2] == owed[:2]]
    low = max((claim.physical_offset for claim in same if claim.queue_offset < owed.queue_offset), default=span.begin)
    high = min((claim.physical_offset for claim in same if claim.queue_offset > owed.queue_offset), default=span.end)
    begins = sorted((claim.physical_offset, claim.physical_offset + claim.size) for claim in claims)
    for (_, begin), (end, _) in pairwise([(0, span.begin), *begins, (span.end - BLANK_SIZE, 0)]):
        if low <= begin and begin + size <= end <= high:
            claims.append(owed._replace(physical_offset=begin, size=size))
            return True
    return False


def _owed(items: Sequence[Message | Blank | Damage], claims: Sequence[Claim]) -> list[Owed]:
    """Queue offsets that are missing between those that the log's messages and the units have; a log that begins at 0
    owes the first, too.

    A 4.x broker that dispatches such a log would take the pre-blank units at the queue's begin for messages at 0.
    """
    known: dict[tuple[str, int], dict[int, int]] = {}
    for claim in claims:
        known.setdefault(claim[:2], {})[claim.queue_offset] = claim.physical_offset
    for item in items:
        if isinstance(item, Message):
            for place in queue_destinations(item):
                known.setdefault((place.topic, place.queue_id), {})[place.queue_offset] = item.physical_offset
    if items[0].physical_offset == 0:
        for places in known.values():
            places.setdefault(-1, 0)
    return [
        Owed(Claim(*queue, missing), places[low], places[high])
        for queue, places in known.items()
        for low, high in pairwise(sorted(places))
        for missing in range(low + 1, high)
    ]


def _spans(store: ReadOnlyStore, items: Sequence[Message | Blank | Damage]) -> list[tuple[Span, Damage]]:
    """The damaged ranges with the first damage of each: each in one file, and those without a frame
    that touch are one.
    """
    found: list[tuple[Span, Damage]] = []
    for damage in (item for item in items if isinstance(item, Damage)):
        for file in store.commit_log.queue.files:
            begin, end = max(damage.physical_offset, file.file_from_offset), min(damage.end, file.end)
            if begin >= end:
                continue
            last, first = found[-1] if found else (None, damage)
            if last and last.end == begin != last.file_end and damage.message is None and first.message is None:
                found[-1] = last._replace(end=end), first
            else:
                found.append((Span(begin, end, file.file_from_offset, file.end), damage))
    return found


def _claims(store: ReadOnlyStore) -> list[Claim]:
    return [
        Claim(topic, queue_id, unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code)
        for (topic, queue_id), queue in store.queues.items()
        for unit in queue.units(queue.min_offset(0), queue.max_offset)
    ]
