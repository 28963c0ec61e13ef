"""Decide which slaves get the log, and from which offset.

| first report | the slave |
|---|---|
| 0 | is empty: gets the log from its first byte (a real master sends only the last file) |
| less than the log's begin | refused: bytes between the slave's end and the served log's begin are missing |
| at a record, or where a transfer ended | gets the log from this offset |
| at a record, but the bytes before this offset differ from the served log | refused: the slave has another log |
| inside a record | refused: the slave's log is not the first part of the served log |
| more than the log's end | refused: the slave's log is longer than the served log, or differs |

`rmqctl replicate` compares the logs itself, and may report any offset. Only it asks for the settings of the broker
(request 26), so a host that has sent request 26 gets the log from the offset that it reports.

After its first report, a slave only reports the ends of transfers. Its log files have a different size if a later
report is not the end of a transfer, or if it gets more bytes but repeats its report.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from rmqctl.store.ha.frames import HA_TRANSFER_BATCH_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.operations.serve.notices import Notices
    from rmqctl.operations.serve.registered_slaves import RegisteredSlaves
    from rmqctl.operations.serve.served_log import ServedLog
    from rmqctl.store.ha.log_source import LogSource
    from rmqctl.store.ha.slave_policy import Slave

SERVED_KEPT = 16  # connections whose ends of transfers are kept, because a slave may connect again after a transfer
NO_REPORT, REFUSED = (-1, 0), (-1, -1)  # in place of the last report of a slave and its count
SAME_REPORTS_MAX = 4  # a slave repeats its report every 5 seconds
OTHER_SIZE = "its mappedFileSizeCommitLog is not {} bytes; set it, and empty the slave's store"


class ServedSlaves:
    """The rules by which HAService serves or refuses a slave.

    `slaves` compares the log of a slave with the served log. `is_copied_to` returns whether `rmqctl replicate` runs at
    an IP address, `accepts` whether a client there may connect.
    """

    def __init__(
        self,
        log: ServedLog,
        slaves: RegisteredSlaves,
        is_copied_to: Callable[[str], bool],
        accepts: Callable[[str], bool],
        notices: Notices,
    ) -> None:
        self._log = log
        self._slaves = slaves
        self._is_copied_to = is_copied_to
        self._accepts = accepts
        self._notices = notices
        self._lock = threading.Lock()
        self._served: deque[Slave] = deque(maxlen=SERVED_KEPT)
        self._repeated: dict[str, tuple[int, int]] = {}  # the last report of a slave, and its count

    def admits(self, host: str) -> bool:
        """Return whether a slave with this IP address may connect."""
        if self._accepts(host):
            return True
        self._notices.add(f"refused: {host}: --allow does not cover the address")
        return False

    def first_offset(self, report: int, log: LogSource) -> int:
        """Return the physical offset where the transfers to a slave begin.

        It is the reported one, or the log's first byte for a report of 0.
        """
        return report or log.min_offset

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        """Return why a slave is refused, or "" if it is served."""
        host = slave.client_address.rpartition(":")[0]
        is_first = slave.slave_request_offset < 0
        if is_first:
            problem = self._problem_of_first(host, report, log)
        else:
            problem = self._problem_of_later(host, slave, report, log)
        with self._lock:
            if problem:
                self._repeated[slave.client_address] = REFUSED
            elif is_first:
                self._served.append(slave)
        if problem:
            self._notices.add(f"refused: slave {host}: {problem}")
        return problem

    def on_close(self, slave: Slave, reason: str) -> None:
        """Tell the operator why a slave left, unless the slave was refused."""
        with self._lock:
            is_refused = self._repeated.pop(slave.client_address, NO_REPORT) == REFUSED
        if not is_refused:
            self._notices.add(f"note: slave {slave.client_address.rpartition(':')[0]} left: {reason}")

    def _problem_of_first(self, host: str, report: int, log: LogSource) -> str:
        begin, end = log.min_offset, log.max_offset
        if report == 0:
            if not self._slaves.knows(host):
                what = f"note: the slave of {host} did not register here, so its file size is not checked"
                self._notices.add(f"{what}: its mappedFileSizeCommitLog must be {log.file_size}")
            return ""
        if report > end:
            return f"its log ends at {report}, ours at {end}: it is ahead, or another log; empty its store to reseed it"
        if report < begin:
            return f"its log ends at {report}, ours begins at {begin}: empty its store to reseed it"
        if self._is_copied_to(host):
            return ""
        if not self._may_end_at(report):
            return (
                f"its log ends at {report}, inside a record of ours: it is another log, or was not restarted since its "
                "master died; restart it, and if it is refused again, empty its store to reseed it"
            )
        if self._slaves.have_another_log(host, report, log):
            return f"its log differs from ours before {report}, where it ends: empty its store to reseed it"
        return ""

    def _may_end_at(self, offset: int) -> bool:
        with self._lock:
            served = list(self._served)
        if offset % self._log.file_size % HA_TRANSFER_BATCH_SIZE == 0 or self._log.is_record_boundary(offset):
            return True
        return any(slave.is_end_of_transfer(offset) for slave in served)

    def _problem_of_later(self, host: str, slave: Slave, report: int, log: LogSource) -> str:
        if self._is_copied_to(host):
            return ""
        begin = self.first_offset(slave.slave_request_offset, log)
        if report not in (slave.slave_request_offset, begin) and not slave.is_end_of_transfer(report):
            return f"it reports {report}, where no transfer ended: {OTHER_SIZE.format(log.file_size)}"
        with self._lock:
            before, count = self._repeated.get(slave.client_address, NO_REPORT)
            count = count + 1 if report == before else 1
            self._repeated[slave.client_address] = (report, count)
        if report < log.max_offset and count > SAME_REPORTS_MAX:
            return f"it reports {report} again and again: {OTHER_SIZE.format(log.file_size)}"
        return ""
