"""Log files that a store lacks, or that were cut short, where a replica has them.

They are planned as zeros first; the zeros are then damage like any other. What the store never had is no damage: the
log reaches from the first to the last record of the replica that a unit of the store leads to. A file before the
store's first one is missing only if a broker would not have deleted it yet, by fileReservedTime.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.operations.plan import AddLogFile, Step
from rmqctl.operations.rebuild.planned_store import planned_store
from rmqctl.store.journal.changes import Resize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class Filled(NamedTuple):
    """A store whose log has all its files, in full length."""

    store: ReadOnlyStore
    files: dict[str, AddLogFile | Resize]  # by path, those that are not there, or too short
    end: int  # the store, or with `tail` a replica, had records up to this physical offset


def filled(store: ReadOnlyStore, replicas: Collection[CommitLog], *, tail: bool = False) -> Filled:
    """Return the store with zeros for what is missing and a replica has.

    Raises OSError.
    """
    log = store.commit_log.queue
    if not replicas or store.commit_log.has_entries or not log.files:
        return Filled(store, {}, 0)
    begin, end = _led_to(store, replicas)
    if tail:
        end = max([end, *(replica.end()[0] for replica in replicas)])
    size = log.file_size
    if len(log.files) == 1:  # it may be the one that was cut
        size = max([size, *(replica.queue.file_size for replica in replicas if replica.queue.find(log.min_offset))])
    bases = {*_bases(replicas, log.min_offset, size)}
    low, high = log.min_offset, log.files[-1].file_from_offset + size
    while low > begin and low - size in bases and _is_kept(store, low, replicas):
        low -= size
    while high < end and high in bases:
        high += size
    there = {file.file_from_offset: file for file in log.files}
    files: dict[str, AddLogFile | Resize] = {}
    for base in sorted(base for base in bases if low <= base < high):
        file = there.get(base)
        if file is None:
            beside = (log.at_or_before(base) or log.files[0]).name
            path = str(Path(beside).with_name(f"{base:020d}"))
            files[path] = AddLogFile(path, size, beside, ())
        elif file.size_on_disk < size:
            files[file.name] = Resize(file.name, size)
    planned = planned_store(store, [Step(file, "") for file in files.values()]) if files else store
    return Filled(planned, files, end)


def _bases(replicas: Collection[CommitLog], origin: int, size: int) -> Iterator[int]:
    """Yield where the log's files begin that replicas have a part of."""
    for file in (file for replica in replicas for file in replica.queue.files if size and file.size):
        yield from range(file.file_from_offset - (file.file_from_offset - origin) % size, file.end, size)


def _is_kept(store: ReadOnlyStore, end: int, replicas: Collection[CommitLog]) -> bool:
    """Return whether a broker still keeps the file that ends at `end`."""
    newest = store.commit_log.end()[1]
    beside = (log.message_at(end) for log in (store.commit_log, *replicas))
    oldest = newest.store_timestamp - store.conf.expiry.reserved_ms if newest is not None else 0
    return any(message is not None and message.store_timestamp > oldest for message in beside)


def _led_to(store: ReadOnlyStore, replicas: Collection[CommitLog]) -> tuple[int, int]:
    """Return the range of the records that replicas have and units lead to."""
    begins, ends = [store.commit_log.min_offset], [0]
    for queue in store.queues.values():
        for unit in (queue.first_where(lambda _: True), queue.last()):
            if unit is None:
                continue
            for replica in replicas:
                message = replica.message_at(unit.physical_offset)
                if message is not None and message.size == unit.size:
                    begins.append(message.physical_offset)
                    ends.append(message.end)
        queue.queue.close()
    return min(begins), max(ends)
