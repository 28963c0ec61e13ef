"""Batch consume queues whose records have a damaged QUEUEOFFSET: one record moves no queue, and is a finding of its
own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.store.config.file_sizes import Geometry
from tests.conftest import Rmqctl
from tests.support.batch_queues import inner_batch, with_batch_topics
from tests.support.file_edits import flip_bits
from tests.support.small_store import message

SIZES = Geometry(64 * 1024, 1000, 100, 400, consumequeue_ext_file_size=1000, batchconsumequeue_file_size=920)
QUEUE = Path("batchconsumequeue") / "topic-0" / "0" / f"{0:020d}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = with_batch_topics(tmp_path / "store", ["topic-0"], SIZES)
    for number in range(40):
        record = (
            inner_batch(number, 1 + number % 7, topic="topic-0", queue_id=0)
            if number % 4 == 1
            else message(number, topic="topic-0")
        )
        assert made.put_message(record).is_ok
    made.close()
    return tmp_path / "store"


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize(("number", "byte", "bit"), [(0, 6, 1), (6, 0, 128), (6, 6, 1), (7, 7, 4), (38, 6, 1)])
def test_a_damaged_number_moves_no_queue(
    number: int, byte: int, bit: int, with_queues: bool, store: Path, rmqctl: Rmqctl
) -> None:
    whole = (store / QUEUE).read_bytes()
    at = rmqctl("dump", store, "-o", "jsonl").rows()[number]["physicalOffset"]
    log = store / "commitlog" / f"{0:020d}"
    flip_bits(log, at + 20 + byte, bit)
    if with_queues:
        codes = [finding["code"] for finding in rmqctl("verify", store, "-o", "json").document()["findings"]]
        assert codes == ["bad-queue-offset"]
        assert rmqctl("recover", store, "--dry-run", "-o", "json").document()["actions"] == []
    else:
        shutil.rmtree(store / QUEUE.parent)
    assert rmqctl("rebuild", store, "queues", "--yes").code in (0, 3)
    assert (store / QUEUE).read_bytes() == whole
