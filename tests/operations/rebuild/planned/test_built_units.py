"""The units of rebuilt queues, as a plan reads them before they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.operations.plan import RebuildQueue, Step
from rmqctl.operations.rebuild.planned.built_units import BuiltUnits
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
from rmqctl.operations.repair.planned_store import planned_store
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack

Queues = dict[QueueKey, list[tuple[int, ...]]]
NO_INDEX = Selection(index=False, all_topics=True)


def units_of(store: ReadOnlyStore) -> Queues:
    """The units of each queue, pre-blanks, too, and where its files begin."""
    return {key: [(queue.queue.min_offset,), *queue.units(0, 2**40)] for key, queue in store.queues.items()}


@pytest.mark.parametrize("first_file_is_gone", [False, True])
@pytest.mark.parametrize("name", ["497-basic", "broker-533"])
def test_a_planned_queue_is_the_one_that_is_written(name: str, first_file_is_gone: bool, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    if first_file_is_gone:  # then queues begin in the middle of a file
        (root / "commitlog" / f"{0:020d}").unlink()
    store, units = ReadOnlyStore(root), BuiltUnits()
    Rebuild(store, NO_INDEX, tmp_path / "staging", units=units).run()
    planned = planned_store(store, [Step(RebuildQueue(*key), "") for key in store.queues], units)
    (tmp_path / "staging" / "commitlog").symlink_to(root / "commitlog")
    written = ReadOnlyStore(tmp_path / "staging", follow_links=True)
    assert units_of(planned) == units_of(written)
    assert any(units_of(written).values())
    for opened in (store, planned, written):
        opened.close()


def test_a_queue_that_begins_again_has_its_last_units_alone(tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack("497-basic", tmp_path))
    once, twice = BuiltUnits(), BuiltUnits()
    Rebuild(store, NO_INDEX, None, units=once).run()
    Rebuild(store, NO_INDEX, None, units=twice).run()
    assert once.are_as(twice)
    twice.begin(twice.keys[0])
    assert not once.are_as(twice)
    store.close()
