"""Clues about a message that has no record in any store.

If an index entry points before the log's start, the log file with the message is gone. A msgId contains the physical
offset of the message. A UNIQ_KEY shows roughly when the client made the message.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rmqctl.forensics.trace.queue_records import first_from
from rmqctl.format.body.client_id import nearly_time
from rmqctl.format.message import Damage
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.read.commit_log import message_of
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.forensics.trace.key_search import IndexedPlace
    from rmqctl.forensics.trace.log_scan import ScannedPart
    from rmqctl.forensics.trace.trace import Trace
    from rmqctl.format.message import Message
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ZONE_MS_MAX = 15 * 3_600_000  # a client makes an id by its own time zone


def not_found_verdict(trace: Trace, names: list[str]) -> str:
    """Say in one line why no store has the message, if the reason is known.

    `names` has the name of each store, as shown to the user.
    """
    asked = trace.question
    if asked.topic is not None and trace.other_topics:
        return f"no record of the message is in topic {asked.topic}; it is in {', '.join(trace.other_topics)}"
    other_kind = _other_kind(trace)
    if other_kind is not None:
        return other_kind
    if asked.msg_id is not None or asked.offset is not None:
        return "; ".join(_named(_at_place(trace), names))
    found = list(_gone_by_index(trace)) or list(_gone_by_id(trace))
    return found[0] if found else "; ".join(["no record of the message was found", *_named(_searched(trace), names)])


def _other_kind(trace: Trace) -> str | None:
    """Return a text if the id is one of the other kind of a message here.

    The log is not read for a UNIQ_KEY: only a store's index, and what it does not cover.
    """
    msg_id, unique_key = trace.question.msg_id, trace.question.unique_key
    if msg_id is not None:
        found = [one for search in trace.searches if search.uses_index for one in search.records(msg_id)]
        places = [one.message.physical_offset for one in found if one.unique_key == msg_id]
        what = f"{msg_id} is no offsetMsgId, but the UNIQ_KEY of the message at"
        return f"{what} {min(places)}: ask with --unique-key, or --id" if places else None
    at = next(trace.at_id(unique_key or ""), None)
    what = f"{unique_key} is no UNIQ_KEY, but the offsetMsgId of the message at"
    return None if at is None else f"{what} {at.message.physical_offset}: ask with --msg-id, or --id"


def _named(told: Iterable[tuple[int, str]], names: list[str]) -> Iterator[str]:
    # only if several stores were searched
    for number, text in told:
        yield f"{names[number]}: {text}" if len(names) > 1 else text


def remarks_of(trace: Trace, names: list[str]) -> Iterator[str]:
    """Yield remarks on index entries and units that point to a lost message."""
    return _named(_known_of(trace), names)


def _known_of(trace: Trace) -> Iterator[tuple[int, str]]:
    for number, place in trace.dangling:
        store = trace.stores[number]
        stored = f", stored about {rfc3339(place.stored_at)}" if place.stored_at else ""
        yield (
            number,
            f"the index has an entry of topic {place.topic} that leads to offset {place.physical_offset}{stored}",
        )
        for key, queue in store.queues.items():
            unit = first_from(queue, place.physical_offset)
            if unit is not None and unit.physical_offset == place.physical_offset:
                yield number, f"the queue {key[0]}/{key[1]} has a unit for it at queue offset {unit.queue_offset}"


def _at_place(trace: Trace) -> Iterator[tuple[int, str]]:
    """Say what each log has at the offset or msgId of the question, by store number."""
    offset, msg_id = trace.asked_place()
    for number, store in enumerate(trace.stores):
        yield number, _at_offset(store, offset, msg_id)


def _at_offset(store: ReadOnlyStore, offset: int, msg_id: str | None) -> str:
    log = store.commit_log
    item = log.at(offset)
    message = message_of(item)
    if offset < log.min_offset:
        return f"not in this log: it begins at offset {log.min_offset}{_begin(store)}, which is later"
    if message is not None:
        return f"the record at {offset} has the id {message.msg_id}: msgId {msg_id} is another broker's"
    if isinstance(item, Damage) and item.code == "outside-log":
        later = [file.file_from_offset for file in log.queue.files if file.file_from_offset > offset]
        if later:
            return f"not in this log: the file with offset {offset} is missing; the log goes on at {later[0]}"
        return f"not in this log: its files end before offset {offset}"
    around = _around(store, offset)
    if around is not None:
        inside = f"offset {offset} is inside the record at {around.physical_offset}"
        return f"{inside}, which ends at {around.end}: ask for {around.physical_offset}"
    return f"no whole record is at offset {offset}" + (f": {item.code}" if isinstance(item, Damage) else "")


def _around(store: ReadOnlyStore, offset: int) -> Message | None:
    """Return the record that contains an offset, if its frame is whole."""
    file = store.commit_log.queue.find(offset)
    if file is None:
        return None
    items = store.commit_log.scan(start=file.file_from_offset, stop=offset)
    last = next(iter(deque(items, maxlen=1)), None)
    return message if (message := message_of(last)) is not None and message.end > offset else None


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
    """Yield a remark if the UNIQ_KEY is older than the first message of every log."""
    key = trace.question.unique_key or trace.question.key or next(iter(trace.missing), "")
    begins = [first for scan in trace.scans for part in scan.parts if (first := part.first_ms) is not None]
    made = nearly_time(key, max((part.last_ms or 0 for scan in trace.scans for part in scan.parts), default=0))
    if made is not None and begins and made + ZONE_MS_MAX < min(begins):
        later = f"it begins at {rfc3339(min(begins))}, which is later"
        yield f"not in this log: {later}: the id was made about {rfc3339(made)}"


def _searched(trace: Trace) -> Iterator[tuple[int, str]]:
    for scan in trace.scans:
        for part in scan.parts:
            first, last = (None if time is None else rfc3339(time) for time in (part.first_ms, part.last_ms))
            times = f", stored from {first} to {last}" if first and last else ""
            damage = counted(len(scan.damages), "damaged place") if scan.damages else "nothing is damaged there"
            is_whole = not scan.incomplete and not any(damage.code == "file-gap" for damage in scan.damages.values())
            read = "all of the log" if is_whole else "the readable part of the log"
            replaced = f"; {_placeholders(part)}" if part.placeholders else ""
            yield scan.number, f"{read} [{part.start}, {part.end}) was read{times}; {damage}{replaced}"


def _placeholders(part: ScannedPart) -> str:
    found = part.placeholders
    where = f"at offset {found[0]}" if len(found) == 1 else f"from offset {found[0]} to {found[-1]}"
    return f"the log has {counted(len(found), 'placeholder')} {where}: the message may have been one of these"


def _begin(store: ReadOnlyStore) -> str:
    time = _begin_time(store)
    return f" ({time})" if time else ""


def _begin_time(store: ReadOnlyStore) -> str:
    first = message_of(store.commit_log.at(store.commit_log.min_offset))
    time = rfc3339(first.store_timestamp) if first is not None else None
    return time or f"offset {store.commit_log.min_offset}"
