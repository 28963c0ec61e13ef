"""The log as it will be after the repair: queues and index are rebuilt from it.

Like a broker, it dispatches records with a wrong body CRC, a wrong property CRC or torn properties. A broker dispatches
one with a wrong PHYSICALOFFSET to another place, and serves it as long as a unit or an index entry leads to it: here it
keeps its place. Placeholders stand in the place of other damage, if the repair writes them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rmqctl.format.cq_unit import DELAY_UNIT_MS
from rmqctl.format.damage_kinds import codes
from rmqctl.format.message import Damage
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS, MULTI_DISPATCH
from rmqctl.operations.placeholder.blocks import are_served
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.dispatch.light_queues import is_left_out_topic
from rmqctl.store.read.commit_log import FILE_OVERLAP
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.format.message import Blank, Message
    from rmqctl.operations.placeholder.blocks import PlaceholderBlocks
    from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore

DISPATCHED = codes(is_dispatched=True) | codes(is_served=True)


class LogCounts(msgspec.Struct):
    """The progress of a rebuild."""

    position: int  # physical offset
    messages: int = 0  # that were read
    damages: int = 0  # damaged places from which no message can be dispatched


class LostRanges:
    """The ranges of the log from which messages may be lost, in log order."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._before = [0]  # total size of the ranges before the range with the same index
        self._arrays: tuple[Numbers, Numbers] | None = None  # begins and ends, after one empty range

    def add(self, *ranges: tuple[int, int]) -> None:
        """Add ranges (physical offset, size) behind the others."""
        self._arrays = None
        for physical_offset, size in ranges:
            self._begins.append(physical_offset)
            self._before.append(self._before[-1] + size)

    def to_list(self) -> list[tuple[int, int]]:
        """Return the physical offset and size of each range."""
        return list(zip(self._begins, np.diff(self._before).tolist(), strict=True))

    def are_in(self, physical_offsets: Numbers) -> Flags:
        """Return, for each physical offset, whether it is in a range."""
        if self._arrays is None:
            starts = np.array([-1, *self._begins], np.int64)
            self._arrays = starts, starts + np.diff(self._before, prepend=0)
        begins, behind = self._arrays
        return physical_offsets < behind[np.searchsorted(begins, physical_offsets, side="right") - 1]

    def has(self, physical_offset: int) -> bool:
        """Return whether a physical offset is in a range."""
        return bool(self.are_in(np.array([physical_offset]))[0])

    def between(self, start: int, end: int) -> int:
        """Return how many bytes are lost between two physical offsets."""
        return self._before[bisect_left(self._begins, end)] - self._before[bisect_left(self._begins, start)]


class RepairedLog:
    """The log of `store`, with its messages as a broker will dispatch them.

    It ends before the record at the physical offset `end` (None: where the log ends). `threads` threads scan it.
    `placeholders` replace damaged records. Those at the physical offsets `erased` will have no keys. `lost` are the
    ranges that `lose` and `lose_fillers` found. Methods raise OSError.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        builder: DispatchRequestBuilder,
        end: int | None,
        placeholders: PlaceholderBlocks,
        threads: int,
        erased: Collection[int] = (),
    ) -> None:
        self.store = store
        self.builder = builder
        self.lost = LostRanges()
        self.range = range(store.commit_log.min_offset, store.commit_log.queue.end if end is None else end)
        self.end = end
        self._placeholders = placeholders
        self._threads = threads
        self._erased = np.array(sorted(erased), np.int64)

    def items(self, start: int) -> Iterator[Blank | Damage | RecordRun]:
        """Scan the log from a physical offset on, as `DispatchRequestBuilder.scan` does."""
        log, check_bodies = self.store.commit_log, bool(self._placeholders)
        for item in self.builder.scan(
            log, threads=self._threads, start=start, stop=self.end, check_bodies=check_bodies
        ):
            if item.end <= start:
                continue
            if isinstance(item, RecordRun):
                messages = item.result.messages
                messages = messages[int(messages["physical_offset"].searchsorted(start)) :]
                yield item._replace(result=item.result._replace(messages=messages))
            else:
                yield item

    def described(self, item: Blank | Damage | RecordRun) -> Iterator[DispatchColumns]:
        """Yield the messages of an item, as they will be after the repair."""
        if isinstance(item, RecordRun):
            messages = item.result.messages
            messages["hashes_count"][np.isin(messages["physical_offset"], self._erased)] = 0
            yield item.result
        elif not isinstance(item, Damage):
            return
        elif (blocks := self._placeholders.of_damage(item.physical_offset)) is not None:
            for block in blocks if item.code != FILE_OVERLAP else ():  # it begins where damage may begin, too
                described = self.builder.take(block.columns())
                if len(described.messages):
                    yield described
        elif (message := self._dispatched(item)) is not None:
            yield self.builder.of(message)

    def lose_fillers(self, messages: Rows) -> None:
        """Add the fillers of `recover --keep-going`, which are rollback records."""
        fillers = messages[~are_served(messages) & (messages["traits"] & MULTI_DISPATCH == 0)]
        self.lost.add(*zip(fillers["physical_offset"].tolist(), fillers["size"].tolist(), strict=True))

    def lose(self, damage: Damage, counts: LogCounts) -> None:
        """Add a damaged range, from which messages may be lost, and count it.

        An overlap of two log files is none, nor is damage that brokers dispatch, or that one placeholder replaces.
        """
        blocks = self._placeholders.of_damage(damage.physical_offset)
        if blocks is None:
            if self._dispatched(damage) is not None:
                return
            counts.damages += 1
        elif [block.size for block in blocks] == [damage.size] and blocks[0].is_one_message:
            return
        begin = max(damage.physical_offset, counts.position)
        if damage.code != FILE_OVERLAP and begin < damage.end:
            self.lost.add((begin, damage.end - begin))

    def message_at(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset, as it will be after the repair."""
        return self._placeholders.message_at(physical_offset) or self.store.commit_log.message_at(physical_offset)

    def light_rows(self, physical_offset: int, is_wanted: Callable[[int], bool]) -> Iterator[tuple[Rows, bool]]:
        """Yield a row of DISPATCH_COLUMNS for each light queue of a message.

        The flag says whether later versions leave the message's topic out. `is_wanted` gets the number of a queue.
        """
        message = self.message_at(physical_offset)
        if message is None:
            return
        for target in queue_destinations(message)[1:]:
            number = self.builder.number(target.topic.encode("utf-8", "replace"), target.queue_id)
            if is_wanted(number):
                row = np.zeros(1, DISPATCH_COLUMNS)
                row["queue"], row["queue_offset"], row["tags_code"] = number, target.queue_offset, target.tags_code
                row["physical_offset"], row["size"] = physical_offset, message.size
                row["store_timestamp"] = message.store_timestamp
                if target.scheduled:
                    row["tags_code"] = message.store_timestamp + self.delay_of(message.queue_id)
                yield row, is_left_out_topic(message.topic)

    def delay_of(self, queue_id: int) -> int:
        """Return the delay (ms) of a queue of SCHEDULE_TOPIC_XXXX.

        The queueId is the level minus 1. The last unit of the queue shows the delay, or else the store's configuration.
        """
        queue, configured = self.store.queue(SCHEDULE_TOPIC, queue_id), self.store.conf.delays_ms
        last = queue.last() if isinstance(queue, ConsumeQueue) else None
        message = self.store.commit_log.message_at(last.physical_offset) if last is not None else None
        if message is not None and message.topic == SCHEDULE_TOPIC:
            delay = self.store.tags_code(message) - message.store_timestamp
            if delay > 0 and delay % DELAY_UNIT_MS == 0:
                return delay
        return configured[min(max(queue_id, 0), len(configured) - 1)]

    def _dispatched(self, damage: Damage) -> Message | None:
        return self.store.message_in_its_place(damage) if damage.code in DISPATCHED else None
