"""Batch consume queues, written: as the real 5.3.3 wrote them, and inner batches taken and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.errors import NeedsRecovery
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.sys_flag import INNER_BATCH
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.put_message import PutMessageStatus
from tests.conftest import tree_hash
from tests.support.batch_queues import OF_GOLDEN, SMALL, golden, inner_batch, with_batch_topics
from tests.support.dispatched import only_log, queue_bytes
from tests.support.small_store import findings, message, stored


def test_the_same_queues_as_the_real_brokers(tmp_path: Path) -> None:
    real = golden(tmp_path)
    made = only_log(real, tmp_path / "made")
    shutil.copytree(real / "config", made / "config")
    MessageStore(made, geometry=OF_GOLDEN).close()
    assert queue_bytes(made) == queue_bytes(real)
    assert sum(path.startswith("batchconsumequeue/bcq") for path in queue_bytes(real)) == 10


def test_a_brokers_store_is_gone_on_with(tmp_path: Path) -> None:
    root = golden(tmp_path)
    before = {key: queue.max_offset for key, queue in ReadOnlyStore(root).queues.items()}
    store = MessageStore(root)
    for number in range(90):
        count = 1 + number % 5
        result = store.put_message(inner_batch(number, count, topic="bcq", queue_id=number % 3))
        assert result.append is not None
        assert result.append.msg_num == count
    store.close()
    assert findings(root) == []
    after = {key: queue.max_offset for key, queue in ReadOnlyStore(root).queues.items()}
    assert {key: end - before.get(key, 0) for key, end in after.items() if end != before.get(key)} == {
        ("bcq", 0): 90,
        ("bcq", 1): 90,
        ("bcq", 2): 90,
    }


def test_offsets_run_on_by_the_messages_of_a_batch(tmp_path: Path) -> None:
    store = with_batch_topics(tmp_path / "s", ["bcq"], SMALL)
    for number, count in enumerate([3, 1, 5]):
        assert store.put_message(inner_batch(number, count, topic="bcq", queue_id=0)).is_ok
    assert store.put_message(message(3, topic="bcq", queue_id=0)).is_ok
    assert store.put_messages([message(at, topic="bcq", queue_id=0) for at in (4, 5)]).is_ok
    store.close()
    queue = ReadOnlyStore(tmp_path / "s").queues["bcq", 0]
    assert [(unit.queue_offset, unit.batch_size) for unit in queue.units(0, 99)] == [
        (0, 3),
        (3, 1),
        (4, 5),
        (9, 1),
        (10, 1),
        (11, 1),
    ]
    assert [m.properties.get("INNER_BASE") for m in stored(tmp_path / "s")] == ["0", "3", "4", None, None, None]
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize(
    "refused",
    [
        inner_batch(0, 3, topic="bcq")._replace(topic="OrderPaid"),
        inner_batch(0, 3, topic="bcq")._replace(sys_flag=0),
        inner_batch(0, 0, topic="bcq"),
        inner_batch(0, 32768, topic="bcq"),
        inner_batch(0, 3, topic="bcq")._replace(sys_flag=INNER_BATCH | 4),
        inner_batch(0, 3, topic="bcq", body=bytes(4096)),
        inner_batch(0, 3, topic="bcq", properties={"DELAY": "3"}),
    ],
)
def test_inner_batches_that_a_broker_does_not_take(refused: MessageExtBrokerInner, tmp_path: Path) -> None:
    store = with_batch_topics(tmp_path / "s", ["bcq"], SMALL)
    result = store.put_message(refused)
    assert (result.status, bool(result.remark)) == (PutMessageStatus.MESSAGE_ILLEGAL, True)
    assert store.put_messages([inner_batch(0, 3, topic="bcq")] * 2).status is PutMessageStatus.MESSAGE_ILLEGAL
    store.close()
    assert stored(tmp_path / "s") == []


def test_queues_that_topics_json_does_not_know_are_left_alone(tmp_path: Path) -> None:
    root = golden(tmp_path)
    shutil.rmtree(root / "config")
    before = tree_hash(root)
    with pytest.raises(NeedsRecovery, match=r"bcq/\d is not of the queue\.type"):
        MessageStore(root)
    assert tree_hash(root) == before
