"""What the real stores say to 'which offset for this time', as a rule, and our own look-up beside it.

5.x (BoundaryType.LOWER): the first message stored at the time or later; the max offset when there is none. That is
`query --at`, too, which then says that there is none.

4.x knows no 'or later'. It takes the first file whose modification time is not before the time, otherwise the last one,
and in that file a message of just that time, whichever of several it meets first; without one the nearest in time, the
earlier when two are as near. So it gives the first message to a time before all, the last one to a time after all, and
never looks across to the next file. A file that a broker or rmqctl filled was modified when its last message was
stored, or little later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqctl.store.read.consume_queue import UnitQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore

MS = 1_000_000
# our own look-up is asked at both ends of a queue and for one time in so many: before, at and after a message in turn
OURS_EACH, AT_AN_END = 7, 9


def assert_time_look_ups(root: Path, answer: dict[str, Any], version: str) -> None:
    """Every look-up of `answer` (the real store's, of a copy of the store at `root`) against the rule, and ours."""
    store = ReadOnlyStore(root)
    asked = 0
    for row in answer["queues"]:
        queue = store.queues.get((row["topic"], row["queueId"]))
        if queue is None:
            continue
        stored = store_times(store, queue)
        files, looked_up = files_of(queue, stored), row["offsetsByTime"]
        for number, (time, offset) in enumerate(looked_up):
            asked += 1
            later = next((at for at, stored_at in stored.items() if stored_at >= time), None)
            if number % OURS_EACH == 0 or min(number, len(looked_up) - 1 - number) < AT_AN_END:
                ours = store.by_time(queue, time)
                assert (ours.queue_offset if ours else None) == later
            if version.startswith("5."):
                assert offset == (queue.max_offset if later is None else later)
            else:
                assert offset in nearest_in_its_file(files, time), (row["topic"], row["queueId"], time)
    assert asked > 20


def store_times(store: ReadOnlyStore, queue: UnitQueue) -> dict[int, int]:
    """The store time of each message of a queue by its queue offset."""
    messages = {
        unit.queue_offset: store.commit_log.message_at(unit.physical_offset)
        for unit in queue.units(0, queue.max_offset)
    }
    return {offset: message.store_timestamp for offset, message in messages.items() if message is not None}


def files_of(queue: UnitQueue, stored: dict[int, int]) -> list[tuple[int, dict[int, int]]]:
    """Of each file that has messages, when it was modified (ms), and the store times in it."""
    found = []
    for file in queue.queue.files:
        inside = {at: time for at, time in stored.items() if file.file_from_offset // 20 <= at < file.end // 20}
        if inside:
            found.append((file.path.stat().st_mtime_ns // MS, inside))
    return found


def nearest_in_its_file(files: list[tuple[int, dict[int, int]]], time: int) -> list[int]:
    """The offsets that 4.x may give."""
    inside = next((inside for modified, inside in files if modified >= time), files[-1][1])
    same = [offset for offset, at in inside.items() if at == time]
    earlier = [offset for offset, at in inside.items() if at < time]
    later = [offset for offset, at in inside.items() if at > time]
    if same or not (earlier and later):
        return same or earlier[-1:] or later[:1]
    before, behind = time - inside[earlier[-1]], inside[later[0]] - time
    return [earlier[-1] if before <= behind else later[0]]
