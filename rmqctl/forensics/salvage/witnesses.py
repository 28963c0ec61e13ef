"""What proves that two parts of a record belong together.

BODYCRC covers the body alone: a head of one log and a tail of another pass it where they meet outside the body, or in a
body that many records have. There, only `__CRC32#` proves a joint, which covers the whole record, or UNIQ_KEY behind
the joint, whose time the client took just before BORNTIMESTAMP. UNIQ_KEY counts only if the undamaged records of this
log agree with it.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from rmqctl.forensics.salvage.carve import BLOCK_SIZES, HEAD_ROOM, head_at, is_entry, messages_of
from rmqctl.forensics.witness.usual import beginning
from rmqctl.format import crc, message, properties
from rmqctl.format.message import Message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rmqctl.forensics.salvage.carve import Piece
    from rmqctl.forensics.salvage.sources import Source

SAMPLE = 2000  # records
LEAST = 8  # records of a client
TOLERANCE_MS = 50
EXCEPTIONS_SHARE = 0.02
TELLING_FROM = message.BODYCRC_OFFSET  # the bytes before are TOTALSIZE and MAGICCODE, which the decoder checks
BODY_LEAST = 16  # bytes; shorter bodies are often equal


class UniqueKeyTimes:
    """When the month began by the clock of each client, from undamaged records."""

    def __init__(self, pieces: Sequence[Piece], sources: Sequence[Source]) -> None:
        self._found = defaultdict[str, list[int]](list)
        self._bodies: dict[int, int] = {}  # BODYCRC -> physical offset of a record that has it
        step = max(len(pieces) // SAMPLE, 1)
        each = max(SAMPLE // max(len(pieces), 1), 1)
        for piece in pieces[::step]:
            for record in messages_of(sources[piece.source], piece, each):
                self.learn(record)

    def learn(self, record: Message) -> None:
        """Take the times of an undamaged record."""
        self._bodies.setdefault(record.body_crc, record.physical_offset)
        client = beginning(record)
        if client is not None and len(self._found[client[0]]) < SAMPLE:
            self._found[client[0]].append(client[1])

    def has_body_elsewhere(self, record: Message) -> bool:
        """Return whether another record has the same BODYCRC."""
        return self._bodies.get(record.body_crc, record.physical_offset) != record.physical_offset

    def agrees(self, record: Message) -> bool | None:
        """Return whether UNIQ_KEY and BORNTIMESTAMP are of one record.

        None if they do not say.
        """
        client = beginning(record)
        times = self._found.get(client[0], []) if client is not None else []
        if client is None or len(times) < LEAST:
            return None
        usual = median(times)
        strays = sum(abs(time - usual) > TOLERANCE_MS for time in times)
        return None if strays > len(times) * EXCEPTIONS_SHARE else abs(client[1] - usual) <= TOLERANCE_MS


def is_end_proven(source: Source, piece: Piece, times: UniqueKeyTimes) -> bool:
    """Return whether all of a piece's last record is its own.

    Where the log does not go on behind it, a block of something else may begin inside its properties.
    """
    end = piece.position + piece.size
    size, step = piece.last_size, source.block_size or BLOCK_SIZES[1]
    joints = [joint for joint in range(-(end - size) % step, size, step) if joint]
    behind = source.read(end, HEAD_ROOM) if joints else b""
    if not any(behind[:8]) or (piece.entries and is_entry(behind, piece.end)):
        return True
    if behind[4:8] == message.MAGIC_BLANK.to_bytes(4, "big"):
        return True
    following = head_at(behind, piece.end)
    raw = source.read(end - size, size)
    record = message.decode(raw, 0, piece.end - size, size) if len(raw) == size else None
    is_next = following is not None and following.physical_offset == piece.end
    return is_next or not isinstance(record, Message) or is_proven(raw, record, joints, (), times)


def is_proven(
    raw: bytes, record: Message, joints: Collection[int], others: Collection[int], times: UniqueKeyTimes
) -> bool:
    """Return whether all parts of a joined record are of one record.

    `joints` are the bytes of `raw` at which parts meet, `others` the BODYCRCs of records near them.
    """
    if record.properties_bytes[-crc.PROPERTY_CRC_SIZE :].startswith(crc.PROPERTY_CRC_NAME):
        return True  # checked by the decoder
    joints = [joint for joint in joints if joint > TELLING_FROM]
    agrees = times.agrees(record)
    if agrees is False or not joints:
        return agrees is not False
    body_end = message.head_of(raw).size + len(record.body)
    is_common = record.body_crc in others or times.has_body_elsewhere(record)
    if max(joints) < body_end and len(record.body) >= BODY_LEAST and not is_common:
        return True
    key = f"{properties.UNIQ_KEY}{properties.NAME_VALUE_SEPARATOR}{record.properties.get(properties.UNIQ_KEY)}"
    is_across = min(joints) >= message.HEADS[0].offset("BORNHOST") and raw.rfind(key.encode()) >= max(joints)
    return agrees is True and is_across
