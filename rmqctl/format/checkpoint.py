"""The checkpoint file of 4096 bytes, with the following fields.

{table}

A checkpoint is valid if and only if it has at least 48 bytes and no time in it is negative. One of zeros is valid:
nothing was flushed yet.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.format.layout import Field, Layout

CHECKPOINT = Layout(
    "checkpoint",
    (
        Field("physicMsgTimestamp", "q", "store time of the last message flushed to the log"),
        Field("logicsMsgTimestamp", "q", "the same for the queues"),
        Field("indexMsgTimestamp", "q", "the same for the index; advances when a file is full"),
        Field("masterFlushedOffset", "q", "5.x"),
        Field("confirmPhyOffset", "q", "5.x: start of the last valid record"),
        Field("logicsPhysicalOffset", "q", "5.5.0 and later: start of the last record flushed to the queues"),
    ),
)
CHECKPOINT_FILE_SIZE = 4096
if CHECKPOINT.size != 48:
    raise AssertionError("48 bytes of the checkpoint are used")
__doc__ = (__doc__ or "").format(table=CHECKPOINT.table())


class Checkpoint(NamedTuple):
    """The checkpoint's fields: times in ms since 1970, offsets in bytes."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int
    logics_physical_offset: int = 0


def decode(raw: bytes) -> Checkpoint | None:
    """Return the fields of a checkpoint file, or None if the file is too short."""
    if len(raw) < CHECKPOINT.size:
        return None
    return Checkpoint._make(CHECKPOINT.struct.unpack_from(raw))
