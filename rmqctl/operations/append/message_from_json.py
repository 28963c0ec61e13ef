"""Read messages from JSON Lines, with the same keys that `dump` prints.

`append` can read what `dump --body base64 -o jsonl` prints, and lines that a person writes.

`topic` is required. `body` is text unless `bodyEncoding` is hex or base64. Offsets and store times in a line are
ignored, because the message gets new ones. A line with `physicalOffset` comes from a stored message, which `append`
copies without the changes that a broker makes to new messages. Any other line is a new message: one with the property
DELAY is delayed, and one without UNIQ_KEY gets a UNIQ_KEY.

If a line has `bodyCrc`, the body must have this CRC-32; a text of `dump --body utf8` that differs from the stored body
fails. If sysFlag says that the body is compressed, it must be: a client rejects a body that it cannot decompress, and
all messages behind it in the same pull.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from rmqctl.format import properties
from rmqctl.format.body.client_check import PORT_MAX
from rmqctl.format.body.compression import BodyError, decompressed
from rmqctl.format.crc import masked_crc32
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.host import HOSTS_KNOWN, Host
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.store.write.topic_config import QUEUE_NUMS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

BORN_HOST = Host(bytes([127, 0, 0, 1]), 0)
STORE_HOST = Host(bytes([127, 0, 0, 1]), 10911)
_NAME_VALUE, _SEPARATOR = properties.NAME_VALUE_SEPARATOR, properties.PROPERTY_SEPARATOR
_NOT_V6 = ~(BORNHOST_V6 | STOREHOST_V6)
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
QueueId = Annotated[int, msgspec.Meta(ge=0, le=QUEUE_NUMS_MAX - 1)]
_NO_KEY, _UNKNOWN_KEY = "Object missing required field ", "Object contains unknown field "


class Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The keys that are allowed in a JSON line.

    The values of those from `queueOffset` to `detail` are ignored. Times are in ms since 1970.
    """

    topic: Annotated[str, msgspec.Meta(min_length=1)]
    body: str | None = None
    body_encoding: Literal["utf8", "hex", "base64"] = "utf8"
    body_charset: str | None = None
    properties: dict[str, str] = {}
    queue_id: QueueId = 0
    flag: Int = 0
    sys_flag: Int = 0
    born_timestamp: Long | None = None
    born_host: str | None = None
    store_host: str | None = None
    reconsume_times: Int = 0
    prepared_transaction_offset: Long = 0
    body_crc: Long | None = None
    physical_offset: Any = None
    damage: Any = None
    queue_offset: Any = None
    size: Any = None
    body_length: Any = None
    born_time: Any = None
    store_timestamp: Any = None
    store_time: Any = None
    msg_id: Any = None
    tags_code: Any = None
    path: Any = None
    detail: Any = None
    body_error: Any = None


_DECODER = msgspec.json.Decoder(Line)
_BODIES: dict[str, Callable[[str], bytes]] = {
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def message_of_line(line: bytes, now: int) -> tuple[MessageExtBrokerInner, bool]:
    """Return the message of a line, and whether it copies a stored message.

    Without a born time, it gets `now`. Raises ValueError if the line is not a valid message.
    """
    row = line_of(line)
    return message_of_row(row, now), row.physical_offset is not None


def message_of_row(row: Line, now: int) -> MessageExtBrokerInner:
    """Return the message of a decoded line; without a born time, it gets `now`.

    Raises ValueError if the line is not a valid message.
    """
    if row.damage is not None:
        raise ValueError(f"a damaged record ({row.damage}) is not copied")
    is_copy = row.physical_offset is not None
    body = row.body
    if body is None:
        if is_copy:
            raise ValueError("the line has no body: dump with --body base64")
        body = ""
    return MessageExtBrokerInner(
        row.topic,
        _body(body, row),
        checked_properties(row.properties, is_copy=is_copy),
        BORN_HOST if row.born_host is None else _host(row.born_host, "bornHost"),
        STORE_HOST if row.store_host is None else _host(row.store_host, "storeHost"),
        now if row.born_timestamp is None else row.born_timestamp,
        row.queue_id,
        row.flag,
        row.sys_flag & _NOT_V6,
        row.reconsume_times,
        row.prepared_transaction_offset,
    )


def line_of(line: bytes) -> Line:
    """Return the keys of a line. Raises ValueError."""
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(_what_is_wrong(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _leniently_decoded(line)


def _what_is_wrong(error: msgspec.ValidationError) -> str:
    # msgspec writes the key last, as in `... - at $.queueId`, and names in backticks
    what, _, place = str(error).replace("`", "").partition(" - at ")
    if what.startswith(_NO_KEY):
        return f"the line has no {what.removeprefix(_NO_KEY)}"
    if what.startswith(_UNKNOWN_KEY):
        return (
            f"{what.removeprefix(_UNKNOWN_KEY)}: a line has no such key; TAGS, KEYS and names of your own go into "
            "properties"
        )
    if not place:
        return f"not a JSON object: {what[0].lower()}{what[1:]}"
    return f"{place.removeprefix('$.')}: {what[0].lower()}{what[1:]}"


def _converted(row: object) -> Line:
    try:
        return msgspec.convert(row, Line)
    except msgspec.ValidationError as error:
        raise ValueError(_what_is_wrong(error)) from None


def _leniently_decoded(line: bytes) -> Line:
    # dump prints bytes that are not UTF-8 as lone surrogates, which msgspec rejects
    try:
        row = _converted(json.loads(line.decode()))
        for text in (row.topic, *row.properties, *row.properties.values()):
            text.encode("utf-8", "surrogateescape")
        return row
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair in its topic or a property") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON (dump's -o jsonl is wanted): {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


class UniqueKeys:
    """Returns unique keys of 32 hex digits, like a producer's UNIQ_KEY.

    The first 24 digits identify this process, the last 8 are a counter. Not thread-safe.
    """

    def __init__(self) -> None:
        self.process_part = uuid.uuid4().hex[:24].upper()
        self.counter = 0  # the counter of the next key; 32 bits

    def take(self) -> str:
        """Return the next key."""
        taken = f"{self.process_part}{self.counter:08X}"
        self.counter = (self.counter + 1) & 0xFFFFFFFF
        return taken


UNIQUE_KEYS = UniqueKeys()


def _body(text: str, row: Line) -> bytes:
    body_crc = row.body_crc
    try:
        body = _BODIES[row.body_encoding](text) if row.body_encoding in _BODIES else _encoded(text, row.body_charset)
    except (ValueError, binascii.Error) as error:
        raise ValueError(f"the body is not {row.body_charset or row.body_encoding}: {error}") from None
    if body_crc is not None and masked_crc32(body) != body_crc:
        differ = f"its CRC-32 is {masked_crc32(body)}, bodyCrc says {body_crc}"
        raise ValueError(
            f"the body is not what was dumped ({differ}): dump it with --body base64, or leave bodyCrc out if you "
            "changed it"
        )
    try:
        decompressed(row.sys_flag, body)
    except BodyError as error:
        raise ValueError(f"no client can decompress the body: {error}; bit 1 of sysFlag means compressed") from None
    return body


def _encoded(text: str, charset: str | None) -> bytes:
    if charset is None:
        return text.encode("utf-8", "surrogateescape")
    try:
        return text.encode(charset)
    except LookupError:
        raise ValueError("the charset is unknown") from None


def checked_properties(given: dict[str, str], *, is_copy: bool) -> dict[str, str]:
    """Check the properties, and return those that a record stores.

    Properties without a value and the one with the record's CRC-32 are left out. A new message without a UNIQ_KEY gets
    one. A value may contain the byte 0x01 if the message is a copy: brokers of 4.9 and later read such a value, those
    of 4.7 drop it. Raises ValueError if a name or a value is not allowed.
    """
    if properties.CRC32 in given or not all(given.values()):
        given = {name: value for name, value in given.items() if value and name != properties.CRC32}
    names, values = "".join(given), "".join(given.values())
    is_torn = (
        _NAME_VALUE in names or _SEPARATOR in names or _SEPARATOR in values or (not is_copy and _NAME_VALUE in values)
    )
    if "" in given or is_torn:
        raise ValueError("a property has no name, or holds a character that separates properties (0x01 or 0x02)")
    if not is_copy and properties.UNIQ_KEY not in given:
        return given | {properties.UNIQ_KEY: UNIQUE_KEYS.take()}
    return given


@lru_cache(maxsize=HOSTS_KNOWN)
def _host(text: str, key: str) -> Host:
    try:
        address, _, port = text.rpartition(":")
        return Host(ipaddress.ip_address(address.strip("[]")).packed, _port(port))
    except ValueError:
        raise ValueError(f"{key} is not ADDRESS:PORT, with a port of 0 to {PORT_MAX}") from None


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= PORT_MAX:  # clients reject the message otherwise
        raise ValueError(text)
    return port
