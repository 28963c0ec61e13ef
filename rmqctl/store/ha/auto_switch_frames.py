"""The frames of AutoSwitchHA: 5.x with a controller (enableControllerMode).

A slave connects to `haListenPort`. All numbers are big-endian. The field `state` is the type of the frame: 1 HANDSHAKE,
2 TRANSFER.

First, a slave sends a handshake:

{slave_handshake}

A master answers with a handshake header, and then with its epochs, 12 bytes each:

{master_handshake}

{epoch}

After the handshakes, a slave sends reports:

{report}

A master sends transfers: a header and `bodySize` bytes of the log, which never cross the end of a log file or of an
epoch. A transfer with bodySize 0 is a heartbeat.

{transfer}

A valid transfer has the state 2, and obeys the rules in `rmqctl.store.ha.frames`. In a valid handshake, the state is 1,
bodySize is a multiple of 12, at most 1000 epochs follow, epochs increase, and start offsets never decrease.

A slave that sends isAsyncLearner = 1 does not count as a replica. If it sends 0, and the controller does not know it,
all later puts fail.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from rmqctl.format.layout import Field, Layout

HANDSHAKE, TRANSFER_STATE = 1, 2
EPOCHS_MAX = 1000
SLAVE_HANDSHAKE = Layout(
    "slave handshake",
    (
        Field("state", "i", "1: HANDSHAKE"),
        Field("isSyncFromLastFile", "h", "1: a first report of 0 asks for the last file"),
        Field("isAsyncLearner", "h", "1: the slave never counts"),
        Field("slaveBrokerId", "q", "brokerId of the slave"),
    ),
)
MASTER_HANDSHAKE = Layout(
    "master handshake",
    (
        Field("state", "i", "1: HANDSHAKE"),
        Field("bodySize", "i", "bytes of the epochs"),
        Field("masterMaxOffset", "q", "end of the master's log"),
        Field("lastEpoch", "i", "the master's newest epoch"),
    ),
)
EPOCH = Layout(
    "epoch", (Field("epoch", "i", "number of the epoch"), Field("startOffset", "q", "its first physical offset"))
)
AUTO_SWITCH_REPORT = Layout(
    "report",
    (
        Field("state", "i", "2: TRANSFER"),
        Field("maxOffset", "q", "end of the slave's log; the first report: where to begin, 0 is the log's begin"),
    ),
)
AUTO_SWITCH_TRANSFER = Layout(
    "transfer",
    (
        Field("state", "i", "2: TRANSFER"),
        Field("bodySize", "i", "bytes of the body; 0: a heartbeat"),
        Field("offset", "q", "physical offset of the first byte of the body"),
        Field("epoch", "i", "epoch of the body"),
        Field("epochStartOffset", "q", "first physical offset of that epoch"),
        Field("confirmOffset", "q", "end of what the replicas have confirmed"),
    ),
)
__doc__ = (__doc__ or "").format(
    slave_handshake=SLAVE_HANDSHAKE.table(),
    master_handshake=MASTER_HANDSHAKE.table(),
    epoch=EPOCH.table(),
    report=AUTO_SWITCH_REPORT.table(),
    transfer=AUTO_SWITCH_TRANSFER.table(),
)


class EpochEntry(NamedTuple):
    """A time in which one broker was the master; `start_offset` is in bytes."""

    epoch: int
    start_offset: int


def handshake_problem(state: int, body_size: int) -> str:
    """Return the fault of the header of a master's handshake, or ""."""
    if state != HANDSHAKE:
        return f"the handshake has the state {state}, not {HANDSHAKE}"
    if not 0 <= body_size <= EPOCHS_MAX * EPOCH.size or body_size % EPOCH.size:
        return f"the handshake has epochs of {body_size} bytes"
    return ""


def encode_handshake(slave_broker_id: int, *, is_async_learner: bool) -> bytes:
    """Return a slave's handshake with isSyncFromLastFile = 0."""
    return SLAVE_HANDSHAKE.struct.pack(HANDSHAKE, 0, int(is_async_learner), slave_broker_id)


def encode_auto_switch_report(max_offset: int) -> bytes:
    """Return the 12 bytes of a slave's report."""
    return AUTO_SWITCH_REPORT.struct.pack(TRANSFER_STATE, max_offset)


def decode_epochs(raw: bytes) -> list[EpochEntry]:
    """Return the epochs after the header of a master's handshake.

    Raises ValueError if epochs do not increase, or if start offsets decrease.
    """
    found = [EpochEntry._make(values) for values in EPOCH.struct.iter_unpack(raw)]
    for before, after in not_growing(found):
        raise ValueError(f"epoch {after.epoch} at {after.start_offset} follows {before.epoch} at {before.start_offset}")
    return found


def not_growing(epochs: list[EpochEntry]) -> list[tuple[EpochEntry, EpochEntry]]:
    """Return each pair of successive epochs that are not in ascending order.

    In order, the number increases and the start offset does not decrease.
    """
    return [
        (before, after)
        for before, after in pairwise(epochs)
        if after.epoch <= before.epoch or after.start_offset < before.start_offset
    ]
