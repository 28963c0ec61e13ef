"""Sort the messages of a part of the log by queue.

The task that reads the part sorts its messages. The result of a task is two kinds of pieces. A `QueuePiece` has the
messages of some queues, and another task writes these queues. An `IndexPiece` has all keys of the part, and another
task writes the index file that gets these keys. The driver receives only counts (`DescribedRun`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from zlib_ng import zlib_ng

from rmqctl.forensics.audit.index_proof import prove_part
from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH
from rmqctl.operations.rebuild.queue_numbers import may_be_fillers
from rmqctl.operations.rebuild.rebuild import dispatched_message
from rmqctl.store.dispatch.dispatch_requests import DispatchColumns, joined
from rmqctl.store.dispatch.units import have_units
from rmqctl.store.read.file_scan import RecordRun, ZeroTail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from rmqctl.forensics.audit.index_proof import PartProof
    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.file_scan import ScanItem
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    Item = ScanItem | RecordRun | ZeroTail
    OpenStore = Callable[[], AbstractContextManager[ReadOnlyStore]]
    Piece = tuple["PileHeader", "QueuePiece"] | tuple["KeysHeader", "IndexPiece"]


class Grouping(NamedTuple):
    """The settings for the work of tasks on the messages of a part.

    With `with_queues`, the messages are sorted by queue. With `with_index`, the keys of the messages are kept. With
    `audits_index`, the keys are also compared with the existing index. A range of a queue has `units_per_range` queue
    offsets. There are `piles` piles of ranges, and one task writes a pile. A pile can have several ranges of one queue.
    """

    with_queues: bool
    with_index: bool
    audits_index: bool
    units_per_range: int
    piles: int


class PileHeader(NamedTuple):
    """The header of a `QueuePiece`.

    `split` is the number of the part of the log, and `pile` the number of the pile.
    """

    split: int
    pile: int


class QueuePiece(NamedTuple):
    """The messages of a part of the log that are in the ranges of one pile.

    `split` is the number of the part. `ranges` has the topic, the queueId and the number of a range, and its messages
    in log order (rows of DISPATCH_COLUMNS).
    """

    split: int
    ranges: list[tuple[bytes, int, int, Rows]]


class KeysHeader(NamedTuple):
    """The header of an `IndexPiece`.

    `split` is the number of the part of the log. `keys` is the number of keys in the piece.
    """

    split: int
    keys: int


class IndexPiece(NamedTuple):
    """The messages of a part of the log that have keys, and the hashes of the keys.

    `split` is the number of the part. In `keys`, the hashes have the same order as the messages.
    """

    split: int
    keys: DispatchColumns


class PartSummary(NamedTuple):
    """The facts about the messages of a part that the driver needs.

    `entries` is the number of index entries. `names_light_queues` is True if a message names LMQ queues. `in_no_queue`
    has the queues that open or rolled-back transactions name. `in_index` is the comparison with the existing index, or
    None.
    """

    split: int
    entries: int
    names_light_queues: bool
    in_no_queue: frozenset[tuple[bytes, int]]
    in_index: PartProof | None


class DescribedRun(NamedTuple):
    """The result of a record run for the driver.

    `messages` is the number of messages. `rolled_back` has the physical offset and the size of each rollback record
    that names no LMQ queue. `part` is set in the first record run of a part.
    """

    messages: int
    rolled_back: list[tuple[int, int]]
    part: PartSummary | None


def group_part(
    split: int,
    span: tuple[int, int],
    items: Sequence[Item],
    builder: DispatchRequestBuilder,
    open_store: OpenStore,
    *,
    grouping: Grouping,
) -> tuple[list[Item], list[Piece]]:
    """Return the items of a part for the driver, and the pieces for other tasks.

    Each piece has a header. `span` has the physical offsets of the part's begin and end. The record runs in `items`
    have DispatchColumns as results; in the returned items, they have a `DescribedRun`. A record that brokers dispatch
    although it is damaged becomes a record run. `open_store` opens the store. Raises OSError.
    """
    described = [_as_run(item, builder) for item in items]
    runs: list[DispatchColumns] = [item.result for item in described if isinstance(item, RecordRun)]
    if not runs:
        return described, []
    proof = None
    if grouping.audits_index:
        with open_store() as store:
            proof = prove_part(store, builder, *span, described)
    found = joined(runs)
    pieces: list[Piece] = []
    if grouping.with_queues:
        pieces += _queue_pieces(split, found.messages[have_units(found.messages)], builder.queues, grouping)
    if grouping.with_index and found.messages["hashes_count"].any():
        keys = _keys_of(found)
        pieces.append((KeysHeader(split, len(keys.hashes)), IndexPiece(split, keys)))
    summary = _summary(split, found.messages, builder.queues, proof)
    parts = iter((summary,))
    return [_for_driver(item, parts) if isinstance(item, RecordRun) else item for item in described], pieces


def pile_of(topic: bytes, queue_id: int, number: int, piles: int) -> int:
    """Return the pile of a range. All processes must return the same pile."""
    return zlib_ng.crc32(b"%b/%d/%d" % (topic, queue_id, number)) % piles


def _as_run(item: Item, builder: DispatchRequestBuilder) -> Item:
    """Return a record run for a single record that brokers dispatch, or `item`."""
    message = None if isinstance(item, RecordRun | ZeroTail) else dispatched_message(item)
    if message is None or isinstance(item, ZeroTail):
        return item
    return RecordRun(item.physical_offset, item.end - item.physical_offset, 1, builder.of(message))


def _for_driver(run: RecordRun, parts: Iterator[PartSummary]) -> RecordRun:
    messages = run.result.messages
    rolled_back = messages[may_be_fillers(messages)]
    places = list(zip(rolled_back["physical_offset"].tolist(), rolled_back["size"].tolist(), strict=True))
    return run._replace(result=DescribedRun(len(messages), places, next(parts, None)))


def _summary(split: int, messages: Rows, queues: Sequence[tuple[bytes, int]], proof: PartProof | None) -> PartSummary:
    without_unit = np.unique(messages["queue"][~have_units(messages)]).tolist()
    return PartSummary(
        split,
        int(messages["hashes_count"].sum()),
        bool((messages["traits"] & MULTI_DISPATCH).any()),
        frozenset(queues[number] for number in without_unit),
        proof,
    )


def _queue_pieces(
    split: int, messages: Rows, queues: Sequence[tuple[bytes, int]], grouping: Grouping
) -> Iterator[tuple[PileHeader, QueuePiece]]:
    """Yield a piece for each pile that gets messages. The messages keep their order."""
    numbers = messages["queue_offset"] // grouping.units_per_range
    order = np.lexsort((numbers, messages["queue"]))
    rows, numbers = messages[order], numbers[order]
    borders = np.flatnonzero((np.diff(rows["queue"]) != 0) | (np.diff(numbers) != 0)) + 1
    piles: dict[int, QueuePiece] = {}
    for begin, end in pairwise((0, *borders.tolist(), len(rows)) if len(rows) else ()):
        topic, queue_id = queues[rows[begin]["queue"]]
        number = int(numbers[begin])
        pile = pile_of(topic, queue_id, number, grouping.piles)
        piles.setdefault(pile, QueuePiece(split, [])).ranges.append((topic, queue_id, number, rows[begin:end]))
    yield from ((PileHeader(split, pile), piece) for pile, piece in piles.items())


def _keys_of(found: DispatchColumns) -> DispatchColumns:
    """Return the messages with keys, and their hashes in the order of the messages."""
    messages = found.messages[found.messages["hashes_count"] > 0]
    counts = messages["hashes_count"]
    ends: Numbers = np.cumsum(counts)
    starts = ends - counts
    places = np.repeat(messages["hashes_start"] - starts, counts) + np.arange(ends[-1])
    messages["hashes_start"] = starts
    return DispatchColumns(messages, found.hashes[places])
