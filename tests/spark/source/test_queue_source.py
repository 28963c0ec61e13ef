"""Units of consume queues as tasks read them: those that the real brokers report, and that `rmqctl queue` lists.

No Spark runs here.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import Unreadable
from rmqctl.format.cq_unit import is_ext_address
from rmqctl.spark.source import queue_source
from rmqctl.spark.source.queue_source import QUEUE_COLUMNS, QueueSource
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, unpack

pytestmark = pytest.mark.spark  # for pyarrow


def rows_of(root: Path) -> list[dict[str, Any]]:
    source = QueueSource({"path": str(root)}, list(QUEUE_COLUMNS))
    return [row for task in source.tasks() for batch in source.read(task) for row in batch.to_pylist()]


def tags_code(store: ReadOnlyStore, topic: str, queue_id: int, code: int) -> int | None:
    return store.extensions[topic, queue_id].tags_code(code) if is_ext_address(code) else code


def listed(root: Path) -> list[dict[str, Any]]:
    with closing(ReadOnlyStore(root)) as store:
        return [
            {
                "broker": root.parent.name, "store": str(root), "topic": topic, "queueId": queue_id,
                "queueOffset": unit.queue_offset, "physicalOffset": unit.physical_offset, "size": unit.size,
                "tagsCode": tags_code(store, topic, queue_id, unit.tags_code), "batchSize": unit.batch_size,
            }
            for (topic, queue_id), queue in sorted(store.queues.items())
            for unit in queue.units(queue.min_offset(store.commit_log.min_offset), queue.max_offset)
        ]  # fmt: skip


@pytest.mark.parametrize("name", READABLE_NAMES)
def test_every_golden_store(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    assert rows_of(root) == listed(root) != []


def test_queues_that_begin_behind_the_logs_begin(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    (root / "commitlog" / f"{0:020d}").unlink()
    rows = rows_of(root)
    assert rows == listed(root)
    assert min(row["physicalOffset"] for row in rows) >= 65_536


def test_some_queues_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = unpack("533-basic", tmp_path)
    monkeypatch.setattr(queue_source, "TASK_QUEUES", 2)
    assert max(len(task.queues) for task in QueueSource({"path": str(root)}, ["topic"]).tasks()) == 2
    assert rows_of(root) == listed(root)


def test_a_link_is_told(tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    topic = next((root / "consumequeue").iterdir())
    topic.rename(tmp_path / "elsewhere")
    topic.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unreadable, match="a symbolic link out of the store"):
        rows_of(root)
    linked = QueueSource({"path": str(root), "followLinks": "true"}, ["topic"])
    assert topic.name in {
        row["topic"] for task in linked.tasks() for batch in linked.read(task) for row in batch.to_pylist()
    }
