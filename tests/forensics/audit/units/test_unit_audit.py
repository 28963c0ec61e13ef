"""The windows of many queues, beside what test_crosscheck.py and test_light_queues.py see of them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from rmqctl.forensics.audit.units.unit_audit import QueueCursor, UnitAudit
from rmqctl.kernels.cq_unit_compare import MISSING, PLAIN
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.store.config.topics import QueueKey
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.log_maker import Record, write_log


def test_topics_that_are_not_utf8_can_have_one_name(tmp_path: Path) -> None:
    """Several queue numbers, each with its own window of the same queue."""
    write_log(tmp_path, [Record()], file_size=1000)
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(struct.pack(">qiq", 0, 126, 0).ljust(100, b"\0"))
    store = ReadOnlyStore(tmp_path)
    queue = store.queue("T", 0)
    assert isinstance(queue, ConsumeQueue)
    failed: list[QueueKey] = []
    with store.storage.keeping_small_files():
        audit = UnitAudit({("T", 0): QueueCursor(queue)}, lambda _: PLAIN, lambda key, _: failed.append(key))
        audit.know([("T", 0)])
        audit.know([("T", 0)] * 4)
    assert not failed
    assert audit._states["row"].tolist() == [0, 1, 2, 3]
    assert [bytes(window[:20]) for window in audit._pool] == [struct.pack(">qiq", 0, 126, 0)] * 4
    assert audit._states["window_end"].tolist() == [1, 1, 1, 1]


def test_windows_grow_and_read_nothing_that_was_in_their_memory(tmp_path: Path) -> None:
    """A queue of two files with unused units; the memory of the windows has other bytes at first."""
    write_log(tmp_path, [Record()], file_size=1000)
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    unused = {0, 255, 256, 2000, 2303, 2304, 2999, 3000, 5000}
    units = [bytes(20) if at in unused else struct.pack(">qiq", 100 * at, 100, 0) for at in range(6000)]
    for first in (0, 3000):
        (folder / f"{first * 20:020d}").write_bytes(b"".join(units[first : first + 3000]))
    queue = ReadOnlyStore(tmp_path).queue("T", 0)
    assert isinstance(queue, ConsumeQueue)
    cursor = QueueCursor(queue)
    audit = UnitAudit({("T", 0): cursor}, lambda _: PLAIN, lambda *_: None)
    audit._pool[:] = 1
    audit.know([("T", 0)])
    messages = np.zeros(6000, DISPATCH_COLUMNS)
    messages["queue_offset"] = np.arange(6000)
    messages["physical_offset"], messages["size"] = 100 * messages["queue_offset"], 100
    verdicts = audit.verdicts(messages)
    audit.finish()
    assert set(np.flatnonzero(verdicts == MISSING).tolist()) == unused
    assert [end for _, end in cursor.confirmed()] == [255, 2000, 2303, 2999, 5000, 6000]
