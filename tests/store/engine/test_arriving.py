"""Who waits for messages hears of each, once its queue has it; and where queues begin when the store is opened."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.format.profile import PROFILE_4_7, PROFILE_5_3, Profile
from rmqctl.format.properties import hash_code
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.batch_queues import SMALL as SMALL_BATCH
from tests.support.batch_queues import inner_batch, with_batch_topics
from tests.support.small_store import SMALL, created, message, stored


def test_messages_are_told_in_log_order_with_the_offset_behind_them(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int, int, int]] = []
    created(tmp_path / "s").close()
    store = MessageStore(tmp_path / "s", geometry=SMALL, arriving=lambda *told: heard.append(told))
    with StoreServices(store) as services:
        for number in range(40):
            assert services.put_message(message(number)).is_ok
        assert services.put_message(message(1, properties={"DELAY": "2"})).is_ok
        assert services.put_message(message(1, sys_flag=4)).is_ok
        lmq = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,9", "TAGS": "t"}
        assert services.put_message(message(1, properties=lmq)).is_ok
    at = [m.store_timestamp for m in stored(tmp_path / "s")]
    tags = [hash_code(f"Tag{number % 3}") for number in range(40)]
    assert heard == [
        *[("OrderPaid", number % 3, number // 3 + 1, tags[number], at[number]) for number in range(40)],
        (SCHEDULE_TOPIC, 1, 1, at[40] + 5000, at[40]),
        ("OrderPaid", 1, 1, tags[1], at[41]),
        ("OrderPaid", 1, 14, hash_code("t"), at[42]),
        ("%LMQ%a", 0, 8, hash_code("t"), at[42]),
        ("%LMQ%b", 0, 10, hash_code("t"), at[42]),
    ]


@pytest.mark.parametrize("profile", [PROFILE_4_7, PROFILE_5_3])
def test_queues_begin_with_the_first_message_that_the_log_has(profile: Profile, tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root, profile)
    for number in range(9):  # of the first file alone: expired as a whole
        assert store.put_message(message(number, topic="old", queue_id=0)).is_ok
    for number in range(40):
        assert store.put_message(message(number, queue_id=0)).is_ok
    assert (
        store.reader.get_min_offset_in_queue("OrderPaid", 0),
        store.reader.get_max_offset_in_queue("OrderPaid", 0),
    ) == (0, 0)
    store.dispatch()
    assert store.reader.get_min_offset_in_queue("OrderPaid", 0) == 0
    store.close()
    (root / "commitlog" / f"{0:020d}").unlink()
    kept = [m.queue_offset for m in stored(root) if m.topic == "OrderPaid"]
    store = MessageStore(root, profile=profile)
    assert kept[0] > 0
    # the first file of the queue has ten units: a broker looks no further before it deleted it
    assert store.reader.get_min_offset_in_queue("OrderPaid", 0) == (kept[0] if kept[0] < 10 else 0)
    assert store.reader.get_min_offset_in_queue("old", 0) == (9 if profile is PROFILE_5_3 else 0)
    store.close()


def test_a_queue_made_in_the_middle_begins_there(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root)
    for number in range(100):
        assert store.put_message(message(number, queue_id=0)).is_ok
    store.close()
    (root / "commitlog" / f"{0:020d}").unlink()
    shutil.rmtree(root / "consumequeue")
    first = stored(root)[0].queue_offset
    store = MessageStore(root, geometry=SMALL)
    assert store.reader.get_min_offset_in_queue("OrderPaid", 0) == first
    store.close()
    store = MessageStore(root)
    assert store.reader.get_min_offset_in_queue("OrderPaid", 0) == first
    store.close()


def test_batch_queues_begin_with_the_first_batch_that_the_log_has(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = with_batch_topics(root, ["bcq"], SMALL_BATCH)
    for number in range(60):
        assert store.put_message(inner_batch(number, 3, topic="bcq", queue_id=0)).is_ok
    store.dispatch()
    assert store.reader.get_min_offset_in_queue("bcq", 0) == 0
    store.close()
    (root / "commitlog" / f"{0:020d}").unlink()
    first = stored(root)[0].queue_offset
    store = MessageStore(root)
    assert first > 0
    assert store.reader.get_min_offset_in_queue("bcq", 0) == min(first, 30)  # the first file has ten batches
    assert ReadOnlyStore(root).queues["bcq", 0].min_offset(4096) == first
    store.close()
