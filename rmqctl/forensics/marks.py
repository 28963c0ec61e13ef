"""`recover --keep-going`: what takes the place of damaged bytes in the middle of the log (`rmqctl.store.mark_record` makes the records)."""

from __future__ import annotations

from itertools import chain, takewhile
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import message
from rmqctl.format.message import Message
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.store.consume_queue import BatchConsumeQueue
from rmqctl.store.mark_record import Claim, MarkRecord, Span, mark_message, mark_records, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.damage import Damage
    from rmqctl.format.profile import Profile
    from rmqctl.store.read_only_store import ReadOnlyStore

WHOLE_FRAMES = frozenset({"bad-body-crc", "torn-properties"})


class Mark(NamedTuple):
    """A record to be written in place of damage of kind `code`, in file `path` at `file_offset`; `message` is None for a blank.

    The file may be too short for it yet, or missing.
    """

    physical_offset: int
    path: str
    file_offset: int
    data: bytes
    code: str
    message: Message | None


class _Home(NamedTuple):
    """A file of the log that has [begin, end), or is to have it."""

    path: str
    begin: int
    end: int


class Marks:
    """The marks of a store. `added` has them all, by the physical offset of the first of the damages that they stand for."""

    def __init__(self, store: ReadOnlyStore, profile: Profile) -> None:
        self.added: dict[int, list[Mark]] = {}
        self._by_place: dict[int, Mark] = {}
        self._store = store
        self._long_topics = profile.knows_long_topics

    @property
    def all(self) -> list[Mark]:
        """In log order."""
        return [mark for marks in self.added.values() for mark in marks]

    def message_at(self, physical_offset: int) -> Message | None:
        """The message at an offset, as it is going to be."""
        mark = self._by_place.get(physical_offset)
        return self._store.commit_log.message_at(physical_offset) if mark is None else mark.message

    def replace(self, damages: Sequence[Damage], before: int, after: int) -> list[Mark]:
        """The marks for damages that follow one another between the good records at physical offsets `before` and `after`.

        What files are too short for, or that are missing, gets marks, too. Raises ValueError where there is no room for a record, or
        nothing good is near: then there are none.
        """
        found = [mark for of_span in self._touching(damages) for mark in self._marks(of_span, before, after)]
        self.added |= {damage.physical_offset: [] for damage in damages}
        self.added[damages[0].physical_offset] = found
        self._by_place |= {mark.physical_offset: mark for mark in found}
        return found

    def _touching(self, damages: Sequence[Damage]) -> Iterator[list[Damage]]:
        """Damages of one file that touch are one range."""
        run: list[Damage] = []
        for damage in chain.from_iterable(map(self._by_file, damages)):
            if run and (run[-1].end != damage.physical_offset or damage.physical_offset == self._home(damage.physical_offset).begin):
                yield run
                run = []
            run.append(damage)
        if run:
            yield run

    def _by_file(self, damage: Damage) -> Iterator[Damage]:
        """A gap between files, file by file."""
        size = self._store.commit_log.queue.file_size
        if damage.code != "file-gap":
            yield damage
            return
        if damage.size % size:
            raise ValueError(f"{damage.size} bytes are missing, which is no number of files of {size}")
        for begin in range(damage.physical_offset, damage.end, size):
            yield damage._replace(physical_offset=begin, size=size)

    def _marks(self, damages: Sequence[Damage], before: int, after: int) -> Iterator[Mark]:
        first = damages[0]
        if len(damages) == 1 and first.code in WHOLE_FRAMES and first.message is not None:
            data = mark_message(first.message, first.code)
            yield self._mark(MarkRecord(first.physical_offset, len(data), data), first.code)
            return
        home = self._home(first.physical_offset)
        span = Span(first.physical_offset, damages[-1].end, home.begin, home.end)
        log = self._store.commit_log
        around = surroundings(log.message_at(before), log.message_at(after), long_topics=self._long_topics)
        for record in mark_records(span, [*self._claims(span)], first.code, around).records:
            yield self._mark(record, first.code)

    def _mark(self, record: MarkRecord, code: str) -> Mark:
        home = self._home(record.physical_offset)
        decoded = message.decode(record.data, 0, record.physical_offset, record.size)
        found = decoded if isinstance(decoded, Message) else None
        return Mark(record.physical_offset, home.path, record.physical_offset - home.begin, record.data, code, found)

    def _home(self, physical_offset: int) -> _Home:
        """The file that has an offset, or is to have it: one that is too short, or missing."""
        files = self._store.commit_log.queue
        file = files.at_or_before(physical_offset)
        if file is None:
            raise ValueError(f"no file has {physical_offset}")
        begin, end = file.file_from_offset, max(file.end, file.file_from_offset + files.file_size)
        if physical_offset < end:
            return _Home(file.name, begin, end)
        begin += (physical_offset - begin) // files.file_size * files.file_size
        return _Home(f"{file.name[:-FILE_NAME_DIGITS]}{begin:0{FILE_NAME_DIGITS}d}", begin, begin + files.file_size)

    def _claims(self, span: Span) -> Iterator[Claim]:
        """What the queues say of the range."""
        for (topic, queue_id), queue in self._store.queues.items():
            first = queue.first_where(lambda unit: unit.physical_offset >= span.begin)
            units = queue.units(first.queue_offset, queue.max_offset) if first is not None else iter(())
            for unit in takewhile(lambda unit: unit.physical_offset < span.end, units):
                inner = unit.batch_size if isinstance(queue, BatchConsumeQueue) else 0
                place = (unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code)
                yield Claim(topic, queue_id, *place, inner_num=inner)
            queue.queue.close()
