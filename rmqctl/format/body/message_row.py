"""A record as a row with RocketMQ's names and raw values.

Times are also given as RFC 3339, and the body on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqctl.format.body.bodies import NO_BODIES, Bodies
from rmqctl.format.timestamp import rfc3339

if TYPE_CHECKING:
    from rmqctl.format.message import Damage, Message


def message_row(message: Message, *, path: str, tags_code: int, bodies: Bodies = NO_BODIES) -> dict[str, Any]:
    """Return a record as a row."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.size,
        "bodyCrc": message.body_crc,
        "bodyLength": len(message.body),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornTime": rfc3339(message.born_timestamp),
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeTime": rfc3339(message.store_timestamp),
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
        "tagsCode": tags_code,
        "path": path,
        "properties": message.properties,
        **bodies.columns(message),
    }


def damage_row(damage: Damage, *, path: str, bodies: Bodies = NO_BODIES) -> dict[str, Any]:
    """Return a damaged place as a row with `damage` and `detail`.

    If the frame of the record is whole, the row has its fields, too.
    """
    place = {"physicalOffset": damage.physical_offset, "size": damage.size, "path": damage.path or path}
    row = message_row(damage.message, path=path, tags_code=0, bodies=bodies) if damage.message is not None else place
    return row | {"damage": damage.code, "detail": damage.detail}
