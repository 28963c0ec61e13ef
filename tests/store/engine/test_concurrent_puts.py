"""Eight threads put at once, across files and queues: every queue dense, no record over another, and each result says
the truth.
"""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmqctl.format.message import Message
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.flush import FlushIntervals
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus
from tests.support.faulty_system import FaultySystem
from tests.support.small_store import created, findings, message
from tests.support.written_under_faults import assert_dense

THREADS, PUTS = 8, 60
SIZES = Geometry(16 * 1024, 400, 50, 200)
FAST = FlushIntervals(flush=0.005, flush_thorough=0.02, commit=0.005, commit_thorough=0.02)
Put = tuple[list[bytes], PutMessageResult]


@pytest.fixture
def system(tmp_path: Path) -> FaultySystem:
    return FaultySystem(tmp_path)


def put_some(services: StoreServices, thread: int) -> list[Put]:
    """Singles and batches of one thread, each with its bodies and what was said of it."""
    done = []
    for number in range(PUTS):
        bodies = [
            f"{thread}/{number}/{at}".encode().ljust(number * 7 % 300, b"-")
            for at in range(1 + number % 4 * (number % 3 == 0))
        ]
        batch = [message(number % 3, topic=f"topic-{number % 2}", body=body) for body in bodies]
        told = services.async_put_message(batch[0]) if len(batch) == 1 else services.async_put_messages(batch)
        done.append((bodies, told.result(30)))
    return done


def put_by_all(services: StoreServices) -> list[Put]:
    with ThreadPoolExecutor(THREADS) as threads:
        return [put for done in threads.map(lambda thread: put_some(services, thread), range(THREADS)) for put in done]


@pytest.mark.parametrize("sync_flush", [False, True])
def test_no_put_gets_in_the_way_of_another(sync_flush: bool, tmp_path: Path, system: FaultySystem) -> None:
    root = tmp_path / "s"
    with system, StoreServices(created(root, geometry=SIZES), sync_flush=sync_flush, intervals=FAST) as services:
        puts = put_by_all(services)
    assert {result.status for _, result in puts} == {PutMessageStatus.PUT_OK}
    assert_dense(root)
    assert findings(root) == []
    log = {item.physical_offset: item for item in ReadOnlyStore(root).commit_log.scan() if isinstance(item, Message)}
    for bodies, result in puts:
        assert result.append is not None
        stored = [log.pop(offset) for offset in result.append.physical_offsets]
        assert [item.body for item in stored] == bodies
        assert [item.queue_offset for item in stored] == [result.append.logics_offset + at for at in range(len(bodies))]
        assert {(item.topic, item.queue_id) for item in stored} == {(result.append.topic, result.append.queue_id)}
    assert log == {}
    assert len(list((root / "commitlog").iterdir())) > 5


def test_puts_that_wait_share_their_syncs(tmp_path: Path, system: FaultySystem) -> None:
    """While one sync is under way the next puts gather; none is told before it is on the disk."""
    root = tmp_path / "s"
    with system, StoreServices(created(root, geometry=SIZES), sync_flush=True, intervals=FAST) as services:
        assert services.put_message(message(0)).is_ok
        before = system.counts["fdatasync"]
        all_are_put = threading.Event()
        system.before_sync = lambda name: name == "fdatasync" and all_are_put.wait()
        with ThreadPoolExecutor(THREADS) as threads:
            told = list(threads.map(lambda number: services.async_put_message(message(number)), range(THREADS * 4)))
        assert not any(future.done() for future in told)
        all_are_put.set()
        assert {future.result(30).status for future in told} == {PutMessageStatus.PUT_OK}
        assert 1 <= system.counts["fdatasync"] - before <= 2
    assert findings(root) == []


def test_a_sync_that_hangs_is_told_as_a_time_out(
    tmp_path: Path, system: FaultySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.store.engine.store_services.SYNC_FLUSH_TIMEOUT_SECONDS", 0.01)
    root = tmp_path / "s"
    goes_on = threading.Event()
    with system, StoreServices(created(root), sync_flush=True) as services:
        assert services.async_put_message(message(0)).result(30).is_ok  # the file is there
        system.before_sync = lambda name: name == "fdatasync" and goes_on.wait()
        late = services.put_message(message(0))
        goes_on.set()
    assert (late.status, late.is_ok) == (PutMessageStatus.FLUSH_DISK_TIMEOUT, True)
    assert findings(root) == []


@pytest.mark.parametrize("sync_flush", [False, True])
def test_nothing_is_acknowledged_once_a_sync_failed(sync_flush: bool, tmp_path: Path, system: FaultySystem) -> None:
    """Also when the next sync would succeed: it says nothing of the pages that were dropped."""
    root = tmp_path / "s"
    store = created(root, geometry=SIZES)
    failed = threading.Event()

    def fail_once(name: str) -> None:
        if name == "fdatasync" and not failed.is_set():
            failed.set()
            raise OSError(errno.EIO, "Input/output error")

    statuses = []
    services = StoreServices(store, sync_flush=sync_flush, intervals=FAST)
    with system:
        services.__enter__()
        system.before_sync = fail_once
        statuses += [result.status for _, result in put_by_all(services)]
        assert failed.wait(30)
        with pytest.raises(OSError, match="Input/output error"):
            services.__exit__(None, None, None)
    assert store.put_message(message(0)).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    refused = {PutMessageStatus.FLUSH_DISK_TIMEOUT, PutMessageStatus.SERVICE_NOT_AVAILABLE}
    assert set(statuses) <= refused | (set() if sync_flush else {PutMessageStatus.PUT_OK})
    assert (root / "abort").exists()
    assert_dense(root)
