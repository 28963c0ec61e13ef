"""The units of rebuilt queues, as a plan reads them before they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.operations.plan import RebuildQueue, Step
from rmqctl.operations.rebuild.planned_store import BuiltUnits, planned_store
from rmqctl.operations.rebuild.rebuild import Rebuild
from rmqctl.operations.rebuild.selection import Selection
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
    for file in root.glob("consumequeue/*/*/*"):  # the first unit twice: the second place leads to another message
        data = file.read_bytes()
        file.write_bytes(data[:20] + data[:20] + data[40:])
    store, units = ReadOnlyStore(root), BuiltUnits()
    rebuild = Rebuild(store, NO_INDEX, tmp_path / "staging", units=units)
    rebuild.run()
    assert set(units.keys) == set(rebuild.result.placed) != set()
    planned = planned_store(store, [Step(RebuildQueue(*key), "") for key in store.queues], units)
    (tmp_path / "staging" / "commitlog").symlink_to(root / "commitlog")
    written = ReadOnlyStore(tmp_path / "staging", follow_links=True)
    of_written = units_of(written)
    assert units_of(planned) == {key: of_written[key] for key in units.keys}
    for opened in (store, planned, written):
        opened.close()
