"""A store open for long: puts from many threads, dispatch after their backs, synchronous and asynchronous flush."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus
from tests.support.small_store import FAST, created, findings, message, stored


@pytest.mark.parametrize("sync_flush", [False, True])
def test_puts_from_many_threads(sync_flush: bool, tmp_path: Path) -> None:
    results: list[PutMessageResult] = []

    def put(services: StoreServices, start: int) -> None:
        results.extend(services.put_message(message(number)) for number in range(start, start + 60))

    with StoreServices(created(tmp_path / "s"), sync_flush=sync_flush, intervals=FAST) as services:
        threads = [threading.Thread(target=put, args=(services, 100 * number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
    assert len(stored(tmp_path / "s")) == 240
    assert findings(tmp_path / "s") == []


def test_queues_follow_while_it_is_open(tmp_path: Path) -> None:
    with StoreServices(created(tmp_path / "s"), intervals=FAST) as services:
        for number in range(30):
            services.async_put_message(message(number))
        deadline = time.monotonic() + 10
        reached = 0
        while reached < 30 and time.monotonic() < deadline:
            time.sleep(0.05)
            reached = sum(queue.max_offset for queue in ReadOnlyStore(tmp_path / "s").queues.values())
        assert reached == 30
    assert findings(tmp_path / "s") == []


def test_a_refused_message_is_told_at_once(tmp_path: Path) -> None:
    with StoreServices(created(tmp_path / "s"), sync_flush=True) as services:
        told = services.async_put_message(message(0, topic="no/topic"))
        assert told.done()
        assert told.result().status is PutMessageStatus.MESSAGE_ILLEGAL


def test_a_batch_waits_for_the_disk_once(tmp_path: Path) -> None:
    with StoreServices(created(tmp_path / "s"), sync_flush=True) as services:
        result = services.async_put_messages([message(0) for _ in range(5)]).result(10)
    assert (result.status, result.append is not None and result.append.msg_num) == (PutMessageStatus.PUT_OK, 5)
    assert findings(tmp_path / "s") == []
