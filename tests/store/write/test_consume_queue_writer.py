"""What a queue's files look like beside the units in them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from rmqctl.format.columns import UNITS
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.consume_queue_writer import ConsumeQueueWriter
from tests.support.small_store import created, message


def test_a_full_file_was_modified_when_its_last_message_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.x looks for a time in the first file that was modified then or later; and dispatch may come long after the
    messages.
    """
    clock = itertools.count(1_500_000_000_000, 1000)
    monkeypatch.setattr("rmqctl.store.engine.message_store.now_ms", lambda: next(clock))
    store = created(tmp_path / "s")
    for number in range(100):
        store.put_message(message(number))
        if number in (30, 47):
            store.dispatch()
    store.close()
    read = ReadOnlyStore(tmp_path / "s")
    full = 0
    for queue in read.queues.values():
        for file in queue.queue.files[:-1]:
            last = queue.find(file.end // 20 - 1)
            assert last is not None
            stored = read.commit_log.message_at(last.physical_offset)
            assert stored is not None
            assert file.path.stat().st_mtime_ns == stored.store_timestamp * 1_000_000
            full += 1
    assert full == 9


@pytest.mark.parametrize("time", [-(2**63), -1, 2**63 - 1])
def test_any_store_time_may_stand_in_a_log(time: int, tmp_path: Path) -> None:
    """Nothing protects a store time against damage: the file system takes of it what it can."""
    files = WritableMappedFileQueue(WritableStorage(tmp_path), [tmp_path / "0"], 200)
    units = np.zeros(10, UNITS)
    units["physicalOffset"], units["size"] = np.arange(10) * 100, 100
    assert ConsumeQueueWriter(files).put(0, units, np.full(10, time)) == 10
    assert files.max_offset == 200
    files.close()
