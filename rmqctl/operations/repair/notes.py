"""The notes of a recovery plan: what no step and no number of it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.renamed_files import MISPLACED
from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.operations.rebuild.built_queue import blocks_of
from rmqctl.operations.repair.missing_files import messages_between
from rmqctl.store.config import store_path
from rmqctl.store.read.version_guess import signs_of_5
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rmqctl.forensics.renamed_files import RenamedFile
    from rmqctl.format.message import Damage
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def note_of_gap(store: ReadOnlyStore, gap: Damage) -> str:
    """Return the note on a gap in the log, which consumers silently skip."""
    count = messages_between(store, gap.physical_offset, gap.end)
    files = counted(-(-gap.size // store.commit_log.queue.file_size), "file")
    lost = counted(count, "message") if count else "messages that no queue knows of"
    return (
        f"the log lacks {files} from {gap.physical_offset:020d} on, and with that {lost}: brokers start all the same, "
        "and consumers silently get none of these. Put back what a copy or a slave has; or --keep-going fills the gap "
        "with placeholders"
    )


def notes_of_misplaced(store: ReadOnlyStore, damages: Iterable[Damage]) -> Iterator[str]:
    """Yield a note on records whose PHYSICALOFFSET differs from their position.

    Brokers serve such a record if a unit points to it. If it is dispatched again, its unit points to PHYSICALOFFSET
    instead.
    """
    without_own_unit: dict[QueueKey, list[int]] = {}
    for damage in damages:
        message = damage.message if damage.code == MISPLACED else None
        if message is not None and store.message_in_its_place(damage) is None:
            without_own_unit.setdefault((message.topic, message.queue_id), []).append(message.physical_offset)
    unserved = sum(_unled(store.queues.get(key), offsets) for key, offsets in without_own_unit.items())
    if unserved:
        stay, lead = ("stays", "it") if unserved == 1 else ("stay", "them")
        yield (
            f"{counted(unserved, 'message')} with another PHYSICALOFFSET than their place {stay} in the log, but no "
            f"queue leads to {lead}: no consumer gets {lead}, and a new index leads elsewhere. A file of the log may "
            "have a wrong name"
        )


def _unled(queue: UnitQueue | None, physical_offsets: list[int]) -> int:
    left = set(physical_offsets)
    for _, units in blocks_of(queue, 0, PLACES_MAX):
        left -= set(units["physicalOffset"][np.isin(units["physicalOffset"], physical_offsets)].tolist())
    return len(left)


def notes_of_renamed(found: Iterable[RenamedFile]) -> Iterator[str]:
    """Yield a note on each renamed log file, with its former name."""
    for file in found:
        is_one = file.records == 1
        records, say = ("its only record", "says") if is_one else (f"all its {counted(file.records, 'record')}", "say")
        yield (
            f"{file.name} was renamed: {records} {say} the offsets of {file.right_path.name}; rename it back and run "
            "recover again"
        )


def notes_of_passed_over(store: ReadOnlyStore, places: int) -> Iterator[str]:
    """Yield a note on damaged places before the start of the recovery."""
    if places:
        root = store.path.root
        where = (
            f"damage remains: {counted(places, 'damaged place')} before the place where this recovery begins; brokers "
            "serve the records there as they are"
        )
        yield (
            f"{where}; `rmqctl verify {quoted(root)}` shows them, "
            f"`rmqctl recover {quoted(root)} --keep-going` puts placeholders there"
        )


def notes_of_version(store: ReadOnlyStore) -> Iterator[str]:
    """Yield a note if `abort` is the only sign that 5.x wrote the store.

    Each start of a 5.x broker creates `abort.bak`, but a copy of a store may lack it.
    """
    if signs_of_5(store) == [store_path.PID_IN_ABORT]:
        yield "that 5.x wrote this store shows in `abort` alone, which goes: from then on give `--profile 5.3`"


def notes_of_findings(leaves: Mapping[str, int]) -> Iterator[str]:
    """Yield a note on the findings (counted by code) that remain after the repair."""
    if leaves:
        found = ", ".join(f"{count} {code}" for code, count in sorted(leaves.items()))
        yield f"`rmqctl verify` still reports after this: {found} (`rmqctl explain CODE` says what each means)"
