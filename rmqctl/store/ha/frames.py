"""The frames of DefaultHA: 4.x, and 5.x without a controller.

A slave connects to `haListenPort`. No handshake precedes the frames. All numbers are big-endian.

A slave sends reports:

{report}

A master sends transfers: a header and `size` bytes of the log.

{transfer}

A transfer may end at any byte, even inside a record, but never crosses the end of a log file. A master sends log files
with the blanks and the unused ends, so the bodies of all transfers are together an exact copy of the log. A transfer
with size 0 is a heartbeat; its offset is that of the next byte that the master will send.

In a valid transfer, `offset` is that of the next byte that the slave expects, and `size` is 0 to the reader's limit.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.format.layout import Field, Layout

REPORT = Layout("report", (Field("maxOffset", "q", "end of the slave's log; the first report: where to begin"),))
TRANSFER = Layout(
    "transfer",
    (
        Field("offset", "q", "physical offset of the first byte of the body"),
        Field("size", "i", "bytes of the body; 0: a heartbeat"),
    ),
)
HA_TRANSFER_BATCH_SIZE = 32768  # haTransferBatchSize, the broker's default
HA_SEND_HEARTBEAT_INTERVAL = 5.0  # haSendHeartbeatInterval, in seconds
HA_HOUSEKEEPING_INTERVAL = 20.0  # haHousekeepingInterval, in seconds: silence that closes a connection
__doc__ = (__doc__ or "").format(report=REPORT.table(), transfer=TRANSFER.table())


class TransferHeader(NamedTuple):
    """The header of a transfer (12 bytes); `size` is in bytes."""

    offset: int
    size: int

    def problem(self, expected: int, largest: int) -> str:
        """Return the fault of the header; empty if the header is valid.

        `expected` is the physical offset of the next byte that the slave expects. `largest` is the size limit for a
        body, in bytes.
        """
        if self.offset != expected:
            return f"the transfer begins at offset {self.offset}; the next byte is {expected}"
        if not 0 <= self.size <= largest:
            return f"the transfer has a size of {self.size}; 0 to {largest} bytes are possible"
        return ""


def encode_report(max_offset: int) -> bytes:
    """Return the 8 bytes of a slave's report."""
    return REPORT.struct.pack(max_offset)


def decode_report(raw: bytes | memoryview) -> int:
    """Return maxOffset from the 8 bytes of a report."""
    return int(REPORT.struct.unpack(raw)[0])


def encode_transfer(offset: int, size: int) -> bytes:
    """Return the header of a transfer of `size` bytes from `offset` on."""
    return TRANSFER.struct.pack(offset, size)


def decode_transfer(raw: bytes | memoryview) -> TransferHeader:
    """Decode the header of a transfer (12 bytes)."""
    return TransferHeader._make(TRANSFER.struct.unpack(raw))
