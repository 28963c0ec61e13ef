"""The records that `recover` writes over damaged bytes.

`pieces.py` divides the damaged range, and `record.py` builds the records.
"""

from __future__ import annotations

from itertools import chain, takewhile
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.operations.placeholder.blocks import PlaceholderBlock, PlaceholderBlocks
from rmqctl.operations.placeholder.pieces import Span, placeholder_records
from rmqctl.operations.placeholder.record import Claim, placeholder_message, surroundings
from rmqctl.store.read.consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Damage, Message
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WHOLE_FRAMES = frozenset({"bad-body-crc", "torn-properties"})
BLOCK_SIZE = 1024 * 1024
NEIGHBORS = 4  # units on each side of a damaged range that show to which queue a queue file belongs
WINDOW_SIZE = 16 * 1024 * 1024  # bytes of a damaged range for which the queues are searched at once


class _Home(NamedTuple):
    """The log file that has the physical offsets [begin, end) after the repair."""

    path: str
    begin: int
    end: int


class Placeholders:
    """Plans the placeholders of a store, and collects them in `blocks`."""

    def __init__(self, store: ReadOnlyStore, profile: Profile) -> None:
        self.blocks = PlaceholderBlocks()
        self._store = store
        self._long_topics = profile.knows_long_topics

    def message_at(self, physical_offset: int) -> Message | None:
        """Return the message that the repaired log has at a physical offset."""
        return self.blocks.message_at(physical_offset) or self._store.commit_log.message_at(physical_offset)

    def replace(self, damages: Sequence[Damage], before: int, after: int) -> list[PlaceholderBlock]:
        """Return the placeholders for the successive damages between two good records.

        `before` and `after` are the physical offsets of these records. Missing files, and the missing bytes of a short
        file, are replaced, too. Raises ValueError if there is no room for a record, or if neither `before` nor `after`
        is the offset of a good record; `blocks` is then unchanged.
        """
        found = [block for of_span in self._touching(damages) for block in self._blocks(of_span, before, after)]
        self.blocks.put([damage.physical_offset for damage in damages], found)
        return found

    def _touching(self, damages: Sequence[Damage]) -> Iterator[list[Damage]]:
        run: list[Damage] = []
        for damage in chain.from_iterable(map(self._by_file, damages)):
            if run and (run[-1].end != damage.physical_offset or damage.physical_offset == self._home(damage).begin):
                yield run
                run = []
            run.append(damage)
        if run:
            yield run

    def _by_file(self, damage: Damage) -> Iterator[Damage]:
        """Yield one damage for each missing file of a `file-gap`, any other unchanged.

        Raises ValueError if the size of the gap is no multiple of the file size.
        """
        size = self._store.commit_log.queue.file_size
        if damage.code != "file-gap":
            yield damage
            return
        if damage.size % size:
            raise ValueError(f"{damage.size} bytes are missing, which is no number of files of {size}")
        for begin in range(damage.physical_offset, damage.end, size):
            yield damage._replace(physical_offset=begin, size=size)

    def _blocks(self, damages: Sequence[Damage], before: int, after: int) -> Iterator[PlaceholderBlock]:
        home = self._home(damages[0])
        data = bytearray()
        at = damages[0].physical_offset
        for record in chain(self._records(damages, home, before, after), [b""]):
            data += record
            if len(data) >= BLOCK_SIZE or (data and not record):
                yield PlaceholderBlock.pack(at, home.path, at - home.begin, damages[0].code, bytes(data))
                at += len(data)
                data.clear()

    def _records(self, damages: Sequence[Damage], home: _Home, before: int, after: int) -> Iterator[bytes]:
        first = damages[0]
        if len(damages) == 1 and first.code in WHOLE_FRAMES and first.message is not None:
            yield placeholder_message(first.message, first.code)
            return
        log = self._store.commit_log
        around = surroundings(log.message_at(before), log.message_at(after), long_topics=self._long_topics)
        for window in self._windows(Span(first.physical_offset, damages[-1].end, home.begin, home.end)):
            for record in placeholder_records(window, [*self._claims(window)], first.code, around).records:
                yield record.data

    def _windows(self, span: Span) -> Iterator[Span]:
        """Divide a damaged range into parts; a small range stays one.

        Each part but the first begins at a physical offset to which a unit points.
        """
        while span.end - span.begin > 2 * WINDOW_SIZE:
            cut = self._first_claim(span.begin + WINDOW_SIZE)
            if cut is None or cut >= span.end:
                break
            yield span._replace(end=cut)
            span = span._replace(begin=cut)
        yield span

    def _first_claim(self, physical_offset: int) -> int | None:
        firsts = []
        for queue in self._store.queues.values():
            firsts.append(queue.first_where(lambda unit: unit.physical_offset >= physical_offset))
            queue.queue.close()
        return min((unit.physical_offset for unit in firsts if unit is not None), default=None)

    def _home(self, damage: Damage) -> _Home:
        """Return the log file of the damage, with its size after the repair.

        Before, it may be too short or missing. If files overlap, `damage.path` names the file. Raises ValueError if no
        log file begins at or before the damage.
        """
        files = self._store.commit_log.queue
        physical_offset = damage.physical_offset
        named = (file for file in files.files if file.name == damage.path)
        having = (file for file in named if file.file_from_offset <= physical_offset < file.end)
        file = next(having, None) or files.at_or_before(physical_offset)
        if file is None:
            raise ValueError(f"no file has {physical_offset}")
        begin, end = file.file_from_offset, max(file.end, file.file_from_offset + files.file_size)
        if physical_offset < end:
            return _Home(file.name, begin, end)
        begin += (physical_offset - begin) // files.file_size * files.file_size
        return _Home(f"{file.name[:-FILE_NAME_DIGITS]}{begin:0{FILE_NAME_DIGITS}d}", begin, begin + files.file_size)

    def _claims(self, span: Span) -> Iterator[Claim]:
        for key, queue in self._store.queues.items():
            first = queue.first_where(lambda unit: unit.physical_offset >= span.begin)
            units = queue.units(first.queue_offset, queue.max_offset) if first is not None else iter(())
            found = [*takewhile(lambda unit: unit.physical_offset < span.end, units)]
            owner = self._owner(key, queue, found[0].queue_offset, found[-1].queue_offset + 1) if found else key
            for unit in found:
                inner = unit.batch_size if isinstance(queue, BatchConsumeQueue) else 0
                yield Claim(*owner, unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code, inner_num=inner)
            queue.queue.close()

    def _owner(self, key: QueueKey, queue: UnitQueue, first: int, end: int) -> QueueKey:
        """Return the queue of the units with the queue offsets [first, end).

        `key` is the queue of the folder, but a queue file may lie in the folder of another queue. The neighbouring
        units (below `first`, or from `end` on) point to intact messages, which name their queue. It is `key` if there
        are none, or of several queues, and for an LMQ, which has messages of other queues.
        """
        if key[0].startswith(LMQ_PREFIX):
            return key
        before = queue.units(max(first - NEIGHBORS, 0), first)
        after = queue.units(end, min(end + NEIGHBORS, queue.max_offset))
        found = {self._queue_of(unit) for unit in chain(before, after)} - {None}
        owner = found.pop() if len(found) == 1 else None
        return owner or key

    def _queue_of(self, unit: CqUnit) -> QueueKey | None:
        """Return the queue of the intact message to which a unit points, or None.

        None also if message and unit have different queue offsets.
        """
        message = self._store.commit_log.message_at(unit.physical_offset)
        if message is None or message.queue_offset != unit.queue_offset:
            return None
        return message.topic, message.queue_id
