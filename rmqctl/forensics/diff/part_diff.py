"""Compare queues, index, checkpoint, abort and configuration of two stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.format.checkpoint import CHECKPOINT as CHECKPOINT_LAYOUT
from rmqctl.format.columns import ENTRIES
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import CONFIG_FILES, DATA_VERSION
from rmqctl.store.config.store_path import ABORT, CHECKPOINT, CONFIG, CONSUMEQUEUE, INDEX
from rmqctl.store.read.commit_log import UNREADABLE
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.diff.log_diff import Limits
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_UNITS = 64 * 1024  # read at once
_ENTRIES = 1024 * 1024  # read at once
_NAMES_SHOWN, _VALUE_SHOWN = 3, 40


class Difference(NamedTuple):
    """A part that differs or cannot be read: its path in both stores, and how."""

    path: str
    what: str
    is_unread: bool = False


def part_differences(a: ReadOnlyStore, b: ReadOnlyStore, common: Limits) -> Iterator[Difference]:
    """Yield the parts that differ.

    `common` are the physical offsets that both logs have. Raises OSError.
    """
    yield from _queues(a, b)
    yield from _index(a, b, common)
    points = a.checkpoint(), b.checkpoint()
    if points[0] != points[1]:
        names = [field.name for field in CHECKPOINT_LAYOUT.fields]
        yield Difference(CHECKPOINT, _fields(*(dict(zip(names, point or (), strict=False)) for point in points)))
    there = [store.storage.entry(store.path.part(ABORT)).kind is not Kind.MISSING for store in (a, b)]
    if there[0] != there[1]:
        yield Difference(ABORT, f"only {'AB'[there.index(True)]} has it: its broker did not stop, or still runs")
    for name in CONFIG_FILES:
        path, of_a, of_b = f"{CONFIG}/{name}", a.config(name).content, b.config(name).content
        if of_a is None or of_b is None:
            yield _unread(path, of_a is None, of_b is None)
        elif bool(of_a) != bool(of_b):
            yield Difference(path, f"only {'A' if of_a else 'B'} has it")
        elif (flat_a := _flat(of_a)) != (flat_b := _flat(of_b)):
            yield Difference(path, _fields(flat_a, flat_b))


def _unread(path: str, in_a: bool, in_b: bool) -> Difference:
    where = "A and B" if in_a and in_b else "A" if in_a else "B"
    return Difference(path, f"cannot be read in {where}", is_unread=True)


def _queues(a: ReadOnlyStore, b: ReadOnlyStore) -> Iterator[Difference]:
    counts, unread = [len(store.queues) for store in (a, b)], [_has_unread_queues(store) for store in (a, b)]
    if any(unread):
        yield _unread(CONSUMEQUEUE, *unread)
        return
    if 0 in counts and any(counts):
        yield Difference(CONSUMEQUEUE, f"A has {counted(counts[0], 'queue')}, B has {counts[1] or 'none'}")
        return
    for key in sorted(a.queues.keys() | b.queues.keys()):
        path, pair = f"{CONSUMEQUEUE}/{key[0]}/{key[1]}", [store.queues.get(key) for store in (a, b)]
        limits = [
            queue.min_and_max(store.commit_log.min_offset) if queue is not None else (0, 0)
            for store, queue in zip((a, b), pair, strict=True)
        ]
        told = []
        if limits[0] != limits[1]:
            told = [f"{name} has {first} to {end}" for name, (first, end) in zip("AB", limits, strict=True)]
        first, end = max(limits)[0], min(limits[0][1], limits[1][1])
        if pair[0] is not None and pair[1] is not None and first < end:
            different = _different_units(pair[0], pair[1], first, end)
            told += [f"{len(different)} of their units differ, the first at {different[0]}"] if different else []
        if told:
            yield Difference(path, ", ".join(told))
        for queue in filter(None, pair):
            queue.queue.close()


def _has_unread_queues(store: ReadOnlyStore) -> bool:
    _ = store.queues  # which notes what cannot be listed
    return any(damage.code in UNREADABLE and damage.path.split("/")[0] == CONSUMEQUEUE for damage in store.foreign)


def _different_units(a: UnitQueue, b: UnitQueue, first: int, end: int) -> list[int]:
    """Return the queue offsets of units that differ."""
    if not isinstance(a, ConsumeQueue) or not isinstance(b, ConsumeQueue):
        units = [{unit.queue_offset: unit for unit in queue.units(first, end)} for queue in (a, b)]
        return sorted(at for at in units[0].keys() | units[1].keys() if units[0].get(at) != units[1].get(at))
    found: list[int] = []
    for at in range(first, end, _UNITS):
        count = min(_UNITS, end - at)
        slots = np.zeros((2, count, ConsumeQueue.unit_size), np.uint8)
        for queue, into in zip((a, b), slots, strict=True):
            for slot, data in queue.blocks(at, at + count):
                into[slot - at :].reshape(-1)[: len(data)] = np.frombuffer(data, np.uint8)
        found += (np.flatnonzero((slots[0] != slots[1]).any(axis=1)) + at).tolist()
    return found


def _index(a: ReadOnlyStore, b: ReadOnlyStore, common: Limits) -> Iterator[Difference]:
    # each broker has index files of its own: their entries are compared
    wrong = [any(map(store.index.length_problem, store.index.files)) for store in (a, b)]
    if any(wrong):
        yield _unread(INDEX, *wrong)
        return
    of_a, of_b = _entries(a, common), _entries(b, common)
    only = [len(np.setdiff1d(of_a, of_b)), len(np.setdiff1d(of_b, of_a))]
    if any(only):
        told = [f"{counted(count, 'entry', 'entries')} only in {name}" for name, count in zip("AB", only, strict=True)]
        yield Difference(INDEX, ", ".join(told))


def _entries(store: ReadOnlyStore, common: Limits) -> np.ndarray[Any, Any]:
    """Return the hash and physical offset of each entry for the offsets `common`."""
    parts = [np.empty(0, "i8,i8")]
    for file in store.index.files:
        header = file.header()
        for _, data in file.entry_blocks(header.index_count, _ENTRIES) if header is not None else ():
            entries = np.frombuffer(data, ENTRIES)
            entries = entries[(entries["phyOffset"] != 0) | (entries["keyHash"] != 0)]  # zeros, maybe of a hole
            kept = entries[(entries["phyOffset"] >= common.begin) & (entries["phyOffset"] < common.end)]
            part = np.empty(len(kept), "i8,i8")
            part["f0"], part["f1"] = kept["keyHash"], kept["phyOffset"]
            parts.append(part)
        file.file.close()
    return np.concatenate(parts)


def _flat(content: dict[str, Any]) -> dict[str, Any]:
    # the entries of all tables, without the version that each write counts up
    tables = {name: value for name, value in content.items() if name != DATA_VERSION}
    return {
        f"{name} {key}" if key is not None else name: value
        for name, table in tables.items()
        for key, value in (table.items() if isinstance(table, dict) else [(None, table)])
    }


def _fields(a: dict[str, Any], b: dict[str, Any]) -> str:
    names = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
    shown = [_told(name, a.get(name), b.get(name)) for name in names[:_NAMES_SHOWN]]
    more = len(names) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _told(name: str, of_a: object, of_b: object) -> str:
    if of_a is None or of_b is None:
        return f"{name}: only in {'A' if of_b is None else 'B'}"
    values = [json.dumps(value, ensure_ascii=False) for value in (of_a, of_b)]
    return f"{name} differs" if max(map(len, values)) > _VALUE_SHOWN else f"{name}: {values[0]} in A, {values[1]} in B"
