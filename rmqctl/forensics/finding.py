"""The faults of a store; `catalogue` explains their codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.format.message import Damage

FINDING_KEYS = (
    "code",
    "path",
    "physicalOffset",
    "detail",
    "fileOffset",
    "size",
    "topic",
    "queueId",
    "queueOffset",
    "msgId",
    "count",
)


@dataclass
class Finding:
    """A fault of a store. A field that does not apply is None."""

    code: str
    path: str
    physical_offset: int | None  # bytes
    detail: str
    file_offset: int | None = None  # bytes: the position in the file `path`
    size: int | None = None  # bytes
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None  # units
    msg_id: str | None = None
    count: int = 1  # successive faulty units or messages

    def to_json(self) -> dict[str, Any]:
        """Return the finding with RocketMQ's names.

        Fields without a value are left out, except `physicalOffset`.
        """
        optional = {
            "fileOffset": self.file_offset,
            "size": self.size,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "msgId": self.msg_id,
            "count": self.count if self.count > 1 else None,
        }
        always = {"code": self.code, "path": self.path, "physicalOffset": self.physical_offset, "detail": self.detail}
        return always | {key: value for key, value in optional.items() if value is not None}


def of_damage(damage: Damage, path: str, file_from_offset: int) -> Finding:
    """Return the finding for a damage of the commit log file `path`.

    The file begins at physical offset `file_from_offset`.
    """
    finding = Finding(damage.code, damage.path or path, damage.physical_offset, damage.detail, size=damage.size or None)
    finding.file_offset = max(damage.physical_offset - file_from_offset, 0)
    if damage.message is not None:
        finding.topic = damage.message.topic
        finding.queue_id = damage.message.queue_id
        finding.queue_offset = damage.message.queue_offset
        finding.msg_id = damage.message.msg_id
    return finding
