"""The rules by which a master accepts slaves and answers reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rmqctl.store.ha.log_source import LogSource


class Slave(Protocol):
    """The values of a connected slave that a policy uses.

    Offsets are in bytes; -1 means "not known yet".
    """

    client_address: str
    slave_request_offset: int  # in the slave's first report
    slave_ack_offset: int  # acknowledged last

    def is_end_of_transfer(self, offset: int) -> bool:
        """Return whether a transfer ended at `offset`.

        Transfers that end before the last reported offset are forgotten.
        """


class SlavePolicy(Protocol):
    """The decisions of a master about a slave; any thread may call the methods."""

    def admits(self, host: str) -> bool:
        """Return whether a slave with the IP address `host` may connect."""

    def first_offset(self, report: int, log: LogSource) -> int:
        """Return the offset where transfers begin; `report` is the first report."""

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        """Return the reason to close the connection after a report, or "".

        For the first report, `slave.slave_request_offset` is negative. Raises OSError if the log cannot be read; the
        master then closes the connection.
        """

    def on_close(self, slave: Slave, reason: str) -> None:
        """Process the end of a connection that was closed because of `reason`."""


class BrokerPolicy:
    """The policy of a real broker.

    | first report | the transfers begin at |
    |---|---|
    | 0 | the begin of the last file |
    | any other | the report; if the log has no byte at this offset, only heartbeats are sent |

    If a later report is beyond the log's end, a broker of 4.9 closes the connection, and 5.x assumes that the slave has
    all messages. In rmqctl, such a slave acknowledges no message.
    """

    def admits(self, host: str) -> bool:  # noqa: ARG002  # the protocol's signature
        """Return True: a broker accepts all slaves."""
        return True

    def first_offset(self, report: int, log: LogSource) -> int:
        """Return `report`, or the begin of the last log file if `report` is 0."""
        end = log.max_offset
        return report or end - end % log.file_size

    def problem(self, slave: Slave, report: int, log: LogSource) -> str:
        """Return a fault if a report, except the first, is beyond the log's end."""
        if slave.slave_request_offset >= 0 and report > log.max_offset:
            return f"the slave reports {report}, and the log ends at {log.max_offset}"
        return ""

    def on_close(self, slave: Slave, reason: str) -> None:
        """Do nothing."""
