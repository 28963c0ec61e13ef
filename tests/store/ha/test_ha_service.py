"""The master's side on real sockets: what each report brings, who is closed, and what counts as an acknowledgement."""

from __future__ import annotations

import errno
import gc
import random
import threading
import time
import tracemalloc
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest

from rmqctl.store.config.ha_config import HAConf
from rmqctl.store.ha.ha_connection import ReportReader
from rmqctl.store.ha.ha_service import CONNECTIONS_MAX, HAService
from rmqctl.store.ha.log_source import LogSource
from rmqctl.store.ha.slave_policy import BrokerPolicy, Slave
from rmqctl.store.write.group_commit_request import GroupCommitRequest
from rmqctl.store.write.put_message import PutMessageStatus
from tests.support.ha_slave import MemoryLog, ReportingSlave
from tests.support.waiting import until

FILE_SIZE = 1000
BATCH = 300
FAST = HAConf(listen_port=0, transfer_batch_size=BATCH, send_heartbeat_interval_ms=100, housekeeping_interval_ms=5000)
DATA = random.Random(17).randbytes(4321)


def service(log: LogSource | None = None, policy: BrokerPolicy | None = None, **changes: Any) -> HAService:
    return HAService(log or MemoryLog(DATA, FILE_SIZE), FAST._replace(**changes), policy)


def request(next_offset: int, seconds: float, ack_nums: int = 1) -> GroupCommitRequest:
    return GroupCommitRequest(next_offset, time.monotonic() + seconds, Future(), ack_nums)


def test_transfers_are_the_log_and_end_with_each_file() -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        slave.report(1)
        sizes, received = [], b""
        while len(received) < len(DATA) - 1:
            header, body = slave.data_frame()
            assert header.offset == 1 + len(received)
            sizes.append(header.size)
            received += body
        assert received == DATA[1:]
        assert sizes == [300, 300, 300, 99] + [300, 300, 300, 100] * 3 + [300, 21]
        assert slave.frame() == ((len(DATA), 0), b"")  # a heartbeat


@pytest.mark.parametrize(
    ("report", "offset", "size"),
    [
        (0, 4000, 300),  # the begin of the last file
        (1, 1, 300),
        (1500, 1500, 300),
        (len(DATA), len(DATA), 0),
        (len(DATA) + 7, len(DATA) + 7, 0),
    ],
)
def test_where_the_transfers_begin_after_a_first_report(report: int, offset: int, size: int) -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        slave.report(report)
        header, _ = slave.data_frame() if size else slave.frame()
        assert header == (offset, size)


def test_a_slave_before_the_begin_of_the_log_gets_heartbeats_only() -> None:
    with service(MemoryLog(DATA, FILE_SIZE, 2000)) as master, ReportingSlave(master.port) as slave:
        slave.report(500)
        assert [slave.frame()[0] for _ in range(2)] == [(500, 0)] * 2


def test_nothing_is_sent_before_a_first_report_that_is_not_negative() -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        slave.report(-1)
        assert slave.is_silent_for(0.3)
        slave.report(4300)
        assert slave.frame()[0] == (4300, 0)  # a heartbeat was due
        assert slave.frame()[0] == (4300, 21)


def test_of_reports_that_arrive_together_the_last_counts() -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        slave.report(1, 1000, 4000)
        assert slave.data_frame()[0] == (4000, 300)


def test_a_report_may_arrive_byte_by_byte() -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        for byte in (4000).to_bytes(8, "big"):
            slave.send(bytes([byte]))
            time.sleep(0.01)
        assert slave.data_frame()[0] == (4000, 300)


def test_new_bytes_are_sent_at_once() -> None:
    log = MemoryLog(DATA, FILE_SIZE)
    with service(log, send_heartbeat_interval_ms=60_000) as master, ReportingSlave(master.port) as slave:
        slave.report(len(DATA))
        assert until(lambda: master.push2_slave_max_offset == len(DATA))
        log.data += b"new"
        master.put_request(request(len(DATA) + 3, 5))
        assert slave.data_frame() == ((len(DATA), 3), b"new")


def test_a_log_that_cannot_be_compared_closes_the_connection() -> None:
    class Failing(BrokerPolicy):
        reasons: ClassVar[list[str]] = []

        def problem(self, slave: Slave, report: int, log: LogSource) -> str:
            raise OSError(errno.EIO, "Input/output error", "log")

        def on_close(self, slave: Slave, reason: str) -> None:
            self.reasons.append(reason)

    with service(policy=Failing()) as master, ReportingSlave(master.port) as slave:
        slave.report(1)
        assert slave.is_closed()
        assert until(lambda: Failing.reasons == ["comparing the report failed: log: Input/output error"])


def test_a_silent_slave_is_closed() -> None:
    with service(housekeeping_interval_ms=200) as master, ReportingSlave(master.port) as slave:
        slave.report(len(DATA))
        assert slave.is_closed()
        assert until(lambda: master.connection_list == [])


def test_a_slave_that_does_not_read_is_closed_when_it_falls_silent() -> None:
    log = MemoryLog(bytes(64 << 20), 64 << 20)
    changes: dict[str, Any] = {"housekeeping_interval_ms": 300, "transfer_batch_size": 1 << 20}
    with service(log, **changes) as master, ReportingSlave(master.port) as slave:
        slave.report(1)
        assert until(lambda: master.connection_list == [])


def test_a_first_report_beyond_the_end_is_never_an_acknowledgement() -> None:
    log = MemoryLog(DATA, FILE_SIZE)
    with service(log) as master, ReportingSlave(master.port) as slave:
        slave.report(len(DATA) + 100)
        assert until(lambda: bool(master.connection_list))
        waits = request(len(DATA) + 50, 0.2)
        master.put_request(waits)
        assert waits.done.result(5) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert master.push2_slave_max_offset == 0
        log.data += bytes(200)  # now its report is inside the log, but its bytes are others
        slave.report(len(DATA) + 100)
        waits = request(len(DATA) + 50, 0.2)
        master.put_request(waits)
        assert waits.done.result(5) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_a_later_report_beyond_the_end_closes_the_connection() -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        slave.report(len(DATA))
        slave.frame()
        slave.report(len(DATA) + 1)
        assert slave.is_closed()
        assert master.push2_slave_max_offset == len(DATA)


def test_a_put_waits_for_any_slave() -> None:
    with service() as master, ReportingSlave(master.port) as slave:
        slave.report(1)
        waits = request(len(DATA), 10)
        master.put_request(waits)
        assert not waits.done.done()
        slave.follow(1, len(DATA))
        assert waits.done.result(5) is PutMessageStatus.PUT_OK


def test_a_put_waits_for_as_many_slaves_as_it_needs() -> None:
    with service() as master, ReportingSlave(master.port) as one, ReportingSlave(master.port) as other:
        one.report(len(DATA))
        waits, too_many = request(len(DATA), 10, 3), request(len(DATA), 0.1, 4)
        master.put_request(waits)
        master.put_request(too_many)
        assert too_many.done.result(5) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert not waits.done.done()
        other.report(len(DATA))
        assert waits.done.result(5) is PutMessageStatus.PUT_OK


def test_an_acknowledgement_outlives_its_connection_but_not_for_a_count_of_slaves() -> None:
    with service() as master:
        with ReportingSlave(master.port) as slave:
            slave.report(len(DATA))
            assert until(lambda: master.push2_slave_max_offset == len(DATA))
        assert until(lambda: master.connection_list == [])
        any_one, two = request(len(DATA), 0.1), request(len(DATA), 0.1, 2)
        master.put_request(any_one)
        master.put_request(two)
        assert any_one.done.result(5) is PutMessageStatus.PUT_OK
        assert two.done.result(5) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_which_slaves_are_in_sync() -> None:
    with service(slave_fallbehind_max=1000) as master:
        assert not master.is_slave_ok(0)
        assert master.in_sync_replicas_nums(0) == 1
        with ReportingSlave(master.port) as slave:
            slave.report(len(DATA))
            assert until(lambda: master.push2_slave_max_offset == len(DATA))
            assert master.is_slave_ok(len(DATA) + 999)
            assert not master.is_slave_ok(len(DATA) + 1000)
            assert master.in_sync_replicas_nums(len(DATA) + 999) == 2
            assert master.in_sync_replicas_nums(len(DATA) + 1000) == 1


def test_puts_that_wait_are_told_when_the_master_stops() -> None:
    waits = request(len(DATA), 60)
    with service() as master:
        master.put_request(waits)
    assert waits.done.result(0) is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


class Strict(BrokerPolicy):
    """As `serve` is: everything from the begin, and only reports that a slave can have."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def admits(self, host: str) -> bool:
        return host == "127.0.0.1"

    def first_offset(self, report: int, log: LogSource) -> int:
        return report or log.min_offset

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        if slave.slave_request_offset < 0:
            inside = report == 0 or log.min_offset <= report <= log.max_offset
            return "" if inside else "outside"
        is_known = report == slave.slave_request_offset or slave.is_end_of_transfer(report)
        return "" if is_known else "no end of a transfer"

    def on_close(self, slave: Slave, reason: str) -> None:
        self.closed.append(reason)


def test_a_policy_begins_elsewhere_and_refuses() -> None:
    policy = Strict()
    with service(MemoryLog(DATA, FILE_SIZE, 2000), policy) as master:
        with ReportingSlave(master.port) as slave:
            slave.report(0)
            assert slave.follow(2000, 2000 + len(DATA)) == DATA
        for first in (1999, 2001 + len(DATA)):
            with ReportingSlave(master.port) as slave:
                slave.report(first)
                assert slave.is_closed()
        with ReportingSlave(master.port) as slave:
            slave.report(2000)
            slave.data_frame()
            slave.report(2001)
            assert slave.is_closed()
        assert until(lambda: len(policy.closed) == 4)
    assert sorted(policy.closed) == ["no end of a transfer", "outside", "outside", "the slave closed the connection"]


def test_a_policy_admits_addresses() -> None:
    class Nobody(BrokerPolicy):
        def admits(self, host: str) -> bool:
            return False

    with service(policy=Nobody()) as master, ReportingSlave(master.port) as slave:
        assert slave.is_closed()
        assert master.connection_list == []


def test_no_more_connections_than_a_limit() -> None:
    with service() as master, ExitStack() as held:
        for _ in range(CONNECTIONS_MAX):
            held.enter_context(ReportingSlave(master.port))
        assert until(lambda: len(master.connection_list) == CONNECTIONS_MAX)
        with ReportingSlave(master.port) as one_more:
            assert one_more.is_closed()


def test_a_log_that_cannot_be_read_closes_the_connection() -> None:
    class Broken(MemoryLog):
        def read(self, offset: int, size: int) -> bytes:
            raise OSError(5, "Input/output error", "commitlog/00000000000000000000")

    policy = Strict()
    with service(Broken(DATA, FILE_SIZE), policy) as master, ReportingSlave(master.port) as slave:
        slave.report(1)
        assert slave.is_closed()
        assert until(lambda: bool(policy.closed))
    assert policy.closed == ["sending failed: commitlog/00000000000000000000: Input/output error"]


def test_the_reader_of_reports_takes_any_bytes_in_any_parts() -> None:
    """1,000 streams: the last whole report of each part is what one look at the whole stream gives."""
    chance = random.Random(1)
    for _ in range(1000):
        stream = chance.randbytes(chance.randrange(200))
        reader, at = ReportReader(), 0
        while at < len(stream):
            size = chance.randint(1, 40)
            before, after = at // 8, min(at + size, len(stream)) // 8
            whole = stream[8 * (after - 1) : 8 * after]
            expected = int.from_bytes(whole, "big", signed=True) if after > before else None
            assert reader.last_report(stream[at : at + size]) == expected
            at += size


@pytest.mark.slow
def test_a_thousand_fuzzed_slaves_leave_nothing_behind() -> None:
    chance = random.Random(2)
    policy = Strict()
    policy.problem = BrokerPolicy().problem  # type: ignore[method-assign]  # lets them go on for longer
    with service(policy=policy) as master:
        threads = threading.active_count()

        def streams(count: int) -> None:
            for number in range(count):
                if number % 50 == 0:  # the system queues 128 connections; another one waits for a second
                    assert until(lambda: master.connection_list == [])
                with ReportingSlave(master.port) as slave:
                    for _ in range(chance.randrange(4)):
                        sane = (chance.randrange(len(DATA) + 500)).to_bytes(8, "big")
                        try:
                            slave.send(chance.choice((sane, chance.randbytes(chance.randrange(1, 40)))))
                        except ConnectionError:
                            break

        streams(100)
        assert until(lambda: master.connection_list == [])
        gc.collect()
        tracemalloc.start()
        first, _ = tracemalloc.get_traced_memory()
        streams(900)
        assert until(lambda: master.connection_list == [] and threading.active_count() == threads)
        policy.closed.clear()
        gc.collect()
        last, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert last - first < 200_000
        with ReportingSlave(master.port) as slave:
            slave.report(1)
            assert slave.follow(1, len(DATA)) == DATA[1:]
