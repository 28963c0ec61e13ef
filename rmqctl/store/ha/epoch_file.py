"""Read and write epochFileCheckpoint (5.x with a controller).

It shows to which epoch each part of the log belongs.

    COUNT
    CRC                     CRC-32 & 0x7FFFFFFF of the next lines; 0: not checked
    EPOCH-STARTOFFSET       COUNT lines

In a valid file, COUNT lines follow the second line, CRC is right or 0, epochs increase, and start offsets never
decrease.
"""

from __future__ import annotations

from rmqctl.format.crc import masked_crc32
from rmqctl.store.ha.auto_switch_frames import EpochEntry, not_growing

EPOCH_FILE_SIZE_MAX = 1024 * 1024  # bytes; a master keeps at most 1000 epochs


def encode_epochs(entries: list[EpochEntry]) -> bytes:
    """Return the content of an epochFileCheckpoint with `entries`."""
    lines = "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in entries).encode()
    return f"{len(entries)}\n{masked_crc32(lines)}\n".encode() + lines


def decode_epoch_file(content: bytes) -> list[EpochEntry]:
    """Return the epochs in the content of an epochFileCheckpoint.

    Raises ValueError if the content is not valid.
    """
    count, crc, *lines = content.decode("ascii").splitlines()
    body = "".join(f"{line}\n" for line in lines).encode()
    if len(lines) != int(count):
        raise ValueError(f"{len(lines)} epochs instead of {int(count)}")
    if int(crc) not in (0, masked_crc32(body)):
        raise ValueError(f"the CRC is {int(crc)}, that of the epochs is {masked_crc32(body)}")
    pairs = [line.partition("-") for line in lines]
    found = [EpochEntry(int(epoch), int(start)) for epoch, _, start in pairs]
    if not_growing(found):
        raise ValueError("the epochs do not grow")
    return found
