"""A record as a row with RocketMQ's names and raw values.

Times are also given as RFC 3339. The body is included on request.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any

from rmqctl.format import sys_flag
from rmqctl.format.timestamp import rfc3339

if TYPE_CHECKING:
    from rmqctl.format.message import Damage, Message

INFLATED_SIZE_MAX = 64 * 1024 * 1024


def plain_body(message: Message) -> bytes:
    """Return the body, inflated if the body is a zlib stream of up to 64 MiB.

    A body that is not inflated is returned as stored.
    """
    body = bytes(message.body)
    if sys_flag.compression(message.sys_flag) != "zlib":
        return body
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error:
        return body
    return plain if inflater.eof else body


def message_row(message: Message, *, path: str, tags_code: int, body: str = "none") -> dict[str, Any]:
    """Return a record as a row.

    `body` is the encoding of the body in the row: none, utf8 (a zlib body is inflated), hex or base64 (both as stored).
    """
    row: dict[str, Any] = {
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
    }
    if body != "none":
        row["body"] = _encoded(message, body)
        row["bodyEncoding"] = body
    return row


def _encoded(message: Message, encoding: str) -> str:
    if encoding == "utf8":
        return plain_body(message).decode("utf-8", "replace")
    return message.body.hex() if encoding == "hex" else base64.b64encode(message.body).decode()


def damage_row(damage: Damage, *, path: str, body: str = "none") -> dict[str, Any]:
    """Return a damaged place as a row.

    The row has `damage` and `detail`. If the frame of the record is whole, the row has the fields of the record.
    """
    place = {"physicalOffset": damage.physical_offset, "size": damage.size, "path": damage.path or path}
    row = message_row(damage.message, path=path, tags_code=0, body=body) if damage.message is not None else place
    return row | {"damage": damage.code, "detail": damage.detail}
