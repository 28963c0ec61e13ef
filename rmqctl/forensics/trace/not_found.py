"""What is known of a message that no store has.

An index entry may lead to an offset before the log's begin: the broker has deleted the file. A unit of a queue may lead
there, too. An id tells its offset (msgId), or about when the client made it (UNIQ_KEY).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.trace.links import first_from
from rmqctl.format.body.client_id import nearly_time
from rmqctl.format.message import Damage
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.read.commit_log import message_of
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.trace.key_search import IndexedPlace
    from rmqctl.forensics.trace.trace import Trace
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ZONE_MS_MAX = 15 * 3_600_000  # a client makes an id by its own time zone


def not_found_verdict(trace: Trace) -> str:
    """Return, in one line, why no store has the message, as far as it is known."""
    asked = trace.question
    if asked.msg_id is not None or asked.offset is not None:
        return "; ".join(_at_place(trace))
    found = list(_gone_by_index(trace)) or list(_gone_by_id(trace))
    return found[0] if found else "; ".join(["no record of the message was found", *_searched(trace)])


def remarks_of(trace: Trace) -> Iterator[str]:
    """Yield what index and queues still know of a message that is lost."""
    for number, place in trace.dangling:
        store = trace.stores[number]
        stored = f", stored about {rfc3339(place.stored_at)}" if place.stored_at else ""
        yield f"the index has an entry of topic {place.topic} that leads to offset {place.physical_offset}{stored}"
        for key, queue in store.queues.items():
            unit = first_from(queue, place.physical_offset)
            if unit is not None and unit.physical_offset == place.physical_offset:
                yield f"the queue {key[0]}/{key[1]} has a unit for it at queue offset {unit.queue_offset}"


def _at_place(trace: Trace) -> Iterator[str]:
    """Yield what is at the place of a question by msgId or physical offset."""
    offset, msg_id = trace.asked_place()
    for store in trace.stores:
        log = store.commit_log
        begin = _begin(store)
        item = log.at(offset)
        message = message_of(item)
        if offset < log.min_offset:
            yield f"not in this log: it begins at offset {log.min_offset}{begin}, which is later"
        elif message is not None:
            yield f"the record at {offset} has the id {message.msg_id}: msgId {msg_id} is another broker's"
        elif isinstance(item, Damage) and item.code == "outside-log":
            yield f"not in this log: its files end before offset {offset}"
        elif isinstance(item, Damage):
            yield f"no whole record is at offset {offset}: {item.code}"
        else:
            yield f"no record begins at offset {offset}"


def _gone_by_index(trace: Trace) -> Iterator[str]:
    for number, place in trace.dangling:
        store = trace.stores[number]
        if place.physical_offset < store.commit_log.min_offset:
            yield f"not in this log: it begins at {_begin_time(store)}, which is later: {_told(place)}"
        else:
            yield f"lost from the log: {_told(place)}, and no whole record is there"


def _told(place: IndexedPlace) -> str:
    stored = f" (stored about {rfc3339(place.stored_at)})" if place.stored_at else ""
    return f"an index entry of {place.topic} leads to offset {place.physical_offset}{stored}"


def _gone_by_id(trace: Trace) -> Iterator[str]:
    """Yield that the log begins after a client made the UNIQ_KEY, if all logs do."""
    key = trace.question.unique_key or trace.question.key or ""
    begins = [first for scan in trace.scans for part in scan.parts if (first := part.first_ms) is not None]
    made = nearly_time(key, max((part.last_ms or 0 for scan in trace.scans for part in scan.parts), default=0))
    if made is not None and begins and made + ZONE_MS_MAX < min(begins):
        later = f"it begins at {rfc3339(min(begins))}, which is later"
        yield f"not in this log: {later}: the id was made about {rfc3339(made)}"


def _searched(trace: Trace) -> Iterator[str]:
    for scan in trace.scans:
        for part in scan.parts:
            times = f", stored from {rfc3339(part.first_ms)} to {rfc3339(part.last_ms or 0)}" if part.first_ms else ""
            damage = counted(len(scan.damages), "damaged place") if scan.damages else "nothing is damaged there"
            yield f"all of the log [{part.start}, {part.end}) was read{times}; {damage}"


def _begin(store: ReadOnlyStore) -> str:
    time = _begin_time(store)
    return f" ({time})" if time else ""


def _begin_time(store: ReadOnlyStore) -> str:
    """Return the store time of the log's first message, or the log's first offset."""
    first = message_of(store.commit_log.at(store.commit_log.min_offset))
    time = rfc3339(first.store_timestamp) if first is not None else None
    return time or f"offset {store.commit_log.min_offset}"
