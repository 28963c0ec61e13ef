"""How a master treats the reports of a slave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rmqctl.store.ha.log_source import LogSource


class Slave(Protocol):
    """The part of a connected slave that a policy sees.

    Offsets are in bytes; -1: not known yet. `slave_request_offset` is the first report. `slave_ack_offset` is the last
    report that counts as an acknowledgement.
    """

    client_address: str
    slave_request_offset: int
    slave_ack_offset: int

    def is_end_of_transfer(self, offset: int) -> bool:
        """Return whether a transfer ended at `offset`.

        Transfers that end before the last report do not count.
        """


class SlavePolicy(Protocol):
    """The decisions of a master about a slave.

    Several threads call the methods.
    """

    def admits(self, host: str) -> bool:
        """Return whether a slave with the IP address `host` may connect."""

    def first_offset(self, report: int, log: LogSource) -> int:
        """Return where the transfers begin after a first report, which is 0 or more."""

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        """Return why the master closes the connection after a report.

        The result is empty if the connection stays. For the first report, `slave.slave_request_offset` is negative.
        Raises OSError if the log cannot be read: the connection is closed then.
        """

    def on_close(self, slave: Slave, reason: str) -> None:
        """Process the end of a connection, which has this reason."""


class BrokerPolicy:
    """The policy of a real broker.

    | first report | the transfers begin at |
    |---|---|
    | 0 | the begin of the last file |
    | any other | the report; if the log has no byte at this offset, only heartbeats are sent |

    In 4.9, if the second or a later report is beyond the log's end, the connection is closed. 5.x keeps the connection,
    and assumes that the slave has all messages. rmqctl does not count a slave that reports an offset beyond the log's
    end.
    """

    def admits(self, host: str) -> bool:  # noqa: ARG002  # the protocol's signature
        """Return True: a broker accepts all slaves."""
        return True

    def first_offset(self, report: int, log: LogSource) -> int:
        """Return the begin of the last file for 0, and otherwise the report."""
        end = log.max_offset
        return report or end - end % log.file_size

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        """Return why a report beyond the log's end closes the connection.

        The first report never closes the connection.
        """
        if slave.slave_request_offset >= 0 and report > log.max_offset:
            return f"the slave reports {report}, and the log ends at {log.max_offset}"
        return ""

    def on_close(self, slave: Slave, reason: str) -> None:
        """Do nothing."""
