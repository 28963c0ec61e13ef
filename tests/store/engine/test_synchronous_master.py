"""The engine as SYNC_MASTER: what each put returns with no, one, two, mute, late and dying slaves."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus
from tests.support.configured_store import created
from tests.support.ha_slave import ReportingSlave
from tests.support.small_store import findings, message, stored
from tests.support.waiting import until

OK = PutMessageStatus.PUT_OK
NOT_AVAILABLE = PutMessageStatus.SLAVE_NOT_AVAILABLE
TIMEOUT = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NOT_ENOUGH = PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
CONF = "brokerRole=SYNC_MASTER\nhaListenPort=0\nslaveTimeout=400\nhaSendHeartbeatInterval=100\n"
TWO = "inSyncReplicas=2\n"
ACTING = TWO + "enableSlaveActingMaster=true\ntotalReplicas=2\n"


@contextmanager
def serving(tmp_path: Path, profile: Profile, text: str = "") -> Iterator[StoreServices]:
    with StoreServices(created(tmp_path, CONF + text, profile)) as services:
        yield services
    assert findings(tmp_path / "s") == []


def slave_of(services: StoreServices) -> ReportingSlave:
    assert services.master is not None
    return ReportingSlave(services.master.service.port)


def connected(services: StoreServices, count: int = 1) -> None:
    assert services.master is not None
    service = services.master.service
    assert until(lambda: len(service.connection_list) == count)


class Follower:
    """A slave that receives and reports everything."""

    def __init__(self, services: StoreServices, first_report: int = 0) -> None:
        self.received = bytearray()
        self.slave = slave_of(services)
        self.slave.report(first_report)
        self._thread = threading.Thread(target=self._run, args=(first_report,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.slave.close()
        self._thread.join()

    def _run(self, start: int) -> None:
        try:
            while True:
                header, body = self.slave.frame()
                assert header.offset == start + len(self.received)
                self.received += body
                self.slave.report(start + len(self.received))
        except (OSError, EOFError):
            return


def test_a_port_in_use_is_told_when_the_services_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        store = created(tmp_path, f"{CONF}haListenPort={taken.getsockname()[1]}\n", PROFILE_4_9)
        services = StoreServices(store)
        with pytest.raises(OSError, match="Address already in use"), services:
            pass
    assert services.master is None
    assert findings(tmp_path / "s") == []


def whole_log(tmp_path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((tmp_path / "s" / "commitlog").iterdir()))


def statuses(services: StoreServices, count: int = 1) -> list[PutMessageStatus]:
    return [services.put_message(message(number)).status for number in range(count)]


@pytest.mark.parametrize(
    ("profile", "text", "none", "mute", "following"),
    [
        (PROFILE_4_9, "", NOT_AVAILABLE, TIMEOUT, OK),
        (PROFILE_5_3, "", OK, OK, OK),
        (PROFILE_5_3, TWO, TIMEOUT, TIMEOUT, OK),
        (PROFILE_5_3, ACTING, NOT_ENOUGH, TIMEOUT, OK),
        (PROFILE_5_3, ACTING + "enableAutoInSyncReplicas=true\n", OK, TIMEOUT, OK),
    ],
)
def test_statuses(
    profile: Profile,
    text: str,
    none: PutMessageStatus,
    mute: PutMessageStatus,
    following: PutMessageStatus,
    tmp_path: Path,
) -> None:
    with serving(tmp_path, profile, text) as services:
        assert statuses(services) == [none]
        with slave_of(services):
            connected(services)
            assert statuses(services) == [mute]
        connected(services, 0)
        late = Follower(services)
        connected(services)
        assert statuses(services, 20) == [following] * 20
        late.stop()
        connected(services, 0)
        assert statuses(services) == [none]
    assert whole_log(tmp_path).startswith(bytes(late.received))
    assert len(stored(tmp_path / "s")) == 23 - 2 * (none is NOT_ENOUGH)


def test_what_is_not_enough_is_not_stored(tmp_path: Path) -> None:
    with serving(tmp_path, PROFILE_5_3, ACTING) as services:
        result = services.put_message(message(0))
        batch = services.async_put_messages([message(0), message(0)]).result(0)
    assert (result.status, result.append, result.remark) == (NOT_ENOUGH, None, "in-sync replicas not enough")
    assert batch.status is NOT_ENOUGH
    assert stored(tmp_path / "s") == []


def test_a_group_that_is_smaller_than_its_connections(tmp_path: Path) -> None:
    """A mirror is no member of the group: the name server does not know it."""
    with serving(tmp_path, PROFILE_5_3, ACTING) as services:
        mirror = Follower(services)
        connected(services)
        assert services.master is not None
        services.master.alive_replica_num_in_group = 1
        assert statuses(services) == [NOT_ENOUGH]
        services.master.alive_replica_num_in_group = 2
        assert statuses(services) == [OK]
        mirror.stop()


def test_up_to_4_9_2_the_time_to_wait_is_another(tmp_path: Path) -> None:
    with serving(tmp_path, PROFILE_4_7, "syncFlushTimeout=300\nslaveTimeout=9000\n") as services, slave_of(services):
        connected(services)
        begin = time.monotonic()
        assert services.put_message(message(0)).status is TIMEOUT
        assert 0.25 < time.monotonic() - begin < 5


@pytest.mark.parametrize(("profile", "text"), [(PROFILE_4_9, ""), (PROFILE_5_3, TWO)])
def test_a_message_that_does_not_wait(profile: Profile, text: str, tmp_path: Path) -> None:
    text += "flushDiskType=SYNC_FLUSH\nslaveTimeout=60000\n"
    with serving(tmp_path, profile, text) as services, slave_of(services):
        connected(services)
        for wait in ("false", "no"):
            quick = message(0)._replace(properties={"WAIT": wait})
            assert services.async_put_message(quick).result(0).status is OK
            assert services.async_put_messages([quick, quick]).result(0).status is OK
        queue = services._store.log_queue
        assert until(lambda: queue.flushed_where == queue.max_offset)  # all the same, the disk gets it soon


def test_batches_and_asynchronous_puts_wait_too(tmp_path: Path) -> None:
    with serving(tmp_path, PROFILE_4_9, "slaveTimeout=60000\n") as services, slave_of(services) as slave:
        connected(services)
        waiting = [services.async_put_message(message(0)), services.async_put_messages([message(0), message(0)])]
        time.sleep(0.1)
        assert not any(told.done() for told in waiting)
        ends = [services._store.max_phy_offset]
        slave.report(ends[0])
        assert [told.result(5).status for told in waiting] == [OK] * 2


@pytest.mark.parametrize("slave_first", [False, True])
def test_the_disk_and_the_slaves_are_waited_for_together(slave_first: bool, tmp_path: Path) -> None:
    conf = "flushDiskType=SYNC_FLUSH\nslaveTimeout=60000\n"
    with serving(tmp_path, PROFILE_4_9, conf) as services, slave_of(services) as slave:
        connected(services)
        gate = threading.Event()
        queue = services._store.log_queue
        flush = queue.flush

        def slow(least_pages: int = 0) -> bool:
            gate.wait(5)
            return flush(least_pages)

        queue.flush = slow  # type: ignore[method-assign]
        told: Future[PutMessageResult] = services.async_put_message(message(0))
        end = services._store.max_phy_offset
        steps: list[Callable[[], None]] = [gate.set, lambda: slave.report(end)]
        for step in steps[:: -1 if slave_first else 1]:
            assert not told.done()
            step()
            time.sleep(0.05)
        assert told.result(5).status is OK


def test_a_disk_that_fails_is_told_although_a_slave_has_the_message(tmp_path: Path) -> None:
    services = StoreServices(created(tmp_path, CONF + "flushDiskType=SYNC_FLUSH\n", PROFILE_4_9))

    def broken(least_pages: int = 0) -> bool:
        raise OSError(5, "Input/output error")

    with services:
        follower = Follower(services)
        connected(services)
        queue = services._store.log_queue
        flush, queue.flush = queue.flush, broken  # type: ignore[method-assign]
        result = services.put_message(message(0))
        assert result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert until(lambda: len(follower.received) == services._store.max_phy_offset)
        follower.stop()
        connected(services, 0)
        assert statuses(services) == [NOT_AVAILABLE]  # of two failures, the slave's is told, as a broker does
        queue.flush = flush  # type: ignore[method-assign]


def test_slaves_that_come_go_and_talk_garbage_change_nothing(tmp_path: Path) -> None:
    chance, stop = random.Random(5), threading.Event()
    with serving(tmp_path, PROFILE_4_9, "slaveTimeout=60000\nhaTransferBatchSize=500\n") as services:
        follower = Follower(services)
        connected(services)

        def disturb() -> None:
            while not stop.is_set():
                with slave_of(services) as slave, suppress(OSError):
                    for _ in range(chance.randrange(4)):
                        small = chance.randrange(100).to_bytes(8, "big")
                        slave.send(chance.choice((small, chance.randbytes(chance.randrange(20)))))

        disturber = threading.Thread(target=disturb, daemon=True)
        disturber.start()
        for number in range(300):
            result = services.put_message(message(number))
            assert result.append is not None
            assert result.status is OK
            assert len(follower.received) >= result.append.wrote_offset + result.append.wrote_bytes
        stop.set()
        disturber.join()
        follower.stop()
    assert whole_log(tmp_path).startswith(bytes(follower.received))


@pytest.mark.parametrize(("profile", "text"), [(PROFILE_4_9, ""), (PROFILE_5_3, TWO)])
def test_one_report_beyond_the_end_poisons_nothing(profile: Profile, text: str, tmp_path: Path) -> None:
    """A real 4.9.7 then says SEND_OK for puts that no slave has."""
    with serving(tmp_path, profile, text) as services:
        with slave_of(services) as liar:
            liar.report(1_000_000)
            connected(services)
            assert statuses(services) == [TIMEOUT]
        connected(services, 0)
        assert statuses(services) == [TIMEOUT if text else NOT_AVAILABLE]


def test_puts_from_many_threads_wait_for_one_slave(tmp_path: Path) -> None:
    with serving(tmp_path, PROFILE_4_9, "slaveTimeout=60000\n") as services:
        follower = Follower(services)
        connected(services)
        received_in_time: list[bool] = []

        def put() -> None:
            for number in range(50):
                result = services.put_message(message(number))
                assert result.append is not None
                end = result.append.wrote_offset + result.append.wrote_bytes
                received_in_time.append(result.status is OK and len(follower.received) >= end)

        threads = [threading.Thread(target=put, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        follower.stop()
        assert received_in_time == [True] * 200
    assert whole_log(tmp_path).startswith(bytes(follower.received))
    assert len(follower.received) > 3 * 4096


def test_a_buffered_log_is_sent_when_it_is_in_its_files(tmp_path: Path) -> None:
    text = "transientStorePoolEnable=true\ntransientStorePoolSize=2\nslaveTimeout=5000\ncommitIntervalCommitLog=20\n"
    with serving(tmp_path, PROFILE_4_9, text) as services:
        follower = Follower(services)
        connected(services)
        assert statuses(services, 5) == [OK] * 5
        follower.stop()
    assert whole_log(tmp_path).startswith(bytes(follower.received))


def test_an_asynchronous_master_opens_no_port(tmp_path: Path) -> None:
    with StoreServices(created(tmp_path, "brokerRole=ASYNC_MASTER\n", PROFILE_4_9)) as services:
        assert services.master is None
        assert statuses(services) == [OK]
