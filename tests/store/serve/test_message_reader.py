"""Reading a store while it is open for writing: what was put and dispatched is there at once, whole, also for other
threads.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rmqctl.format.profile import PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.serve.get_message import GetMessageStatus
from rmqctl.store.serve.message_reader import MessageReader
from rmqctl.store.serve.subscription import Subscription
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.support.small_store import FAST, created, findings, message


def put(store: MessageStore, start: int, end: int) -> None:
    for number in range(start, end):
        assert store.put_message(message(number)).is_ok


def test_what_was_dispatched_is_read_and_what_was_not_is_not(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    read = store.reader
    assert read.get_message("OrderPaid", 0, 0, 32).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    for number in range(0, 90, 9):  # files of ten units: new ones come
        put(store, number, number + 9)
        assert read.get_max_offset_in_queue("OrderPaid", 0) == number // 3
        store.dispatch()
        assert read.get_max_offset_in_queue("OrderPaid", 0) == number // 3 + 3
        found = read.get_message("OrderPaid", 0, number // 3, 32)
        assert [m.queue_offset for m in found.messages] == list(range(number // 3, found.next_begin_offset))
        assert found.messages
    assert read.get_message("OrderPaid", 0, 30, 32).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    store.close()
    assert findings(tmp_path / "s") == []


def test_the_index_is_read_before_it_is_flushed(tmp_path: Path) -> None:
    """40 entries a file, three a message: several files, of which the last is being filled."""
    store = created(tmp_path / "s")
    for number in range(60):
        put(store, number, number + 1)
        store.dispatch()
        assert [m.properties["UNIQ_KEY"] for m in store.reader.query_message("OrderPaid", f"k{number}", 64)] == [
            f"{number:032X}"
        ]
    assert len(store.reader.query_message("OrderPaid", "u3", 64)) == 12
    assert [m.queue_offset for m in store.reader.query_message("OrderPaid", "u3", 2)] == [17, 19]
    assert store.reader.query_message("OrderPaid", "u9", 64) == []
    assert len(list((tmp_path / "s" / "index").iterdir())) > 4
    store.close()
    assert findings(tmp_path / "s") == []


def test_by_offset_and_by_id(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    results = [store.put_message(message(number)) for number in range(100)]  # not dispatched: the log alone counts
    for number, result in enumerate(results):
        assert result.append is not None
        found = store.reader.look_message_by_id(result.append.msg_id.lower())
        assert found is not None
        assert found.properties["KEYS"].split()[0] == f"k{number}"
        assert store.reader.look_message_by_offset(result.append.wrote_offset) == found
    assert store.reader.look_message_by_offset(store.max_phy_offset) is None
    assert store.reader.look_message_by_offset(5) is None
    assert store.reader.look_message_by_id("7F" * 8 + "0" * 16) is None
    with pytest.raises(ValueError, match="no msgId"):
        store.reader.look_message_by_id("x")
    store.close()


def test_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000, 10**9, 1000))
    monkeypatch.setattr("rmqctl.store.engine.message_store.now_ms", lambda: next(clock))
    store = created(tmp_path / "s", PROFILE_5_3)
    put(store, 0, 90)
    store.dispatch()
    stored = [
        message.store_timestamp
        for number in range(30)
        for message in store.reader.get_message("OrderPaid", 0, number, 1).messages
    ]
    assert len(set(stored)) == 30
    times = {
        0: 0,
        stored[0]: 0,
        stored[0] + 1: 1,
        stored[15]: 15,
        (stored[14] + stored[15]) // 2: 15,
        stored[29]: 29,
        10**12: 30,
    }
    assert {time: store.reader.get_offset_in_queue_by_time("OrderPaid", 0, time) for time in times} == times
    assert store.reader.get_offset_in_queue_by_time("Unknown", 0, stored[0]) == 0
    store.close()


def test_4x_takes_the_nearest_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000, 10**9, 1000))
    monkeypatch.setattr("rmqctl.store.engine.message_store.now_ms", lambda: next(clock))
    store = MessageStore.create(tmp_path / "s", PutSettings(PROFILE_4_9), Geometry(64 * 1024, 20_000, 10, 40))
    put(store, 0, 90)
    store.dispatch()
    first = store.reader.get_message("OrderPaid", 0, 0, 1).messages[0].store_timestamp
    at = first + 3000 * 15
    times = {0: 0, at: 15, at + 1499: 15, at + 1500: 15, at + 1501: 16, at - 1499: 15, 10**12: 29}
    assert {time: store.reader.get_offset_in_queue_by_time("OrderPaid", 0, time) for time in times} == times
    store.close()


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_an_open_store_is_read_as_a_closed_one(profile: Profile, tmp_path: Path) -> None:
    def answers(read: MessageReader) -> list[object]:
        found: list[object] = [
            read.get_message("OrderPaid", queue, at, 32) for queue in range(4) for at in range(-1, 45)
        ]
        found += [read.get_message("OrderPaid", 1, at, 32, Subscription("Tag1 || TagX")) for at in range(40)]
        return [*found, *(read.query_message("OrderPaid", f"u{number}", 64) for number in range(6))]

    store = created(tmp_path / "s", profile)
    put(store, 0, 120)
    store.dispatch()
    while_open = answers(store.reader)
    store.close()
    assert while_open == answers(MessageReader(ReadOnlyStore(tmp_path / "s"), profile))


def test_a_consumer_follows_a_producer(tmp_path: Path) -> None:
    """One thread puts, the services dispatch, others read: every message once, in order, and never sent back."""
    seen: dict[int, list[int]] = {queue: [] for queue in range(3)}
    statuses = set()

    def consume(read: MessageReader, queue: int) -> None:
        offset = 0
        while offset < 100:
            result = read.get_message("OrderPaid", queue, offset, 32)
            statuses.add(result.status)
            seen[queue] += [m.queue_offset for m in result.messages]
            read.query_message("OrderPaid", "u1", 5)
            offset = result.next_begin_offset

    store = created(tmp_path / "s")
    with StoreServices(store, intervals=FAST) as services:
        threads = [threading.Thread(target=consume, args=(store.reader, queue), daemon=True) for queue in seen]
        for thread in threads:
            thread.start()
        for number in range(300):
            services.async_put_message(message(number))
        for thread in threads:
            thread.join(60)
    assert seen == {queue: list(range(100)) for queue in seen}
    assert statuses <= {
        GetMessageStatus.FOUND,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        GetMessageStatus.OFFSET_OVERFLOW_ONE,
    }
    assert findings(tmp_path / "s") == []
