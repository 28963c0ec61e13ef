"""Messages from JSON Lines with dump's own keys: what `dump --body base64 -o jsonl` prints, or a person writes.

`topic` must be there; `body` is text unless `bodyEncoding` says hex or base64. Offsets and store times of a line are not taken:
they are given anew. A line with `physicalOffset` is a stored message, copied as it is; any other is a new one, so that its
DELAY is obeyed and it gets a UNIQ_KEY where it has none.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import uuid
from typing import TYPE_CHECKING, Any

from rmqctl.format import properties
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.host import Host
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6

if TYPE_CHECKING:
    from collections.abc import Callable

BORN_HOST = Host(bytes([127, 0, 0, 1]), 0)
STORE_HOST = Host(bytes([127, 0, 0, 1]), 10911)
PROPERTY_CRC = "__CRC32#"
_INTEGERS = {
    "queueId": ("queue_id", 32),
    "flag": ("flag", 32),
    "sysFlag": ("sys_flag", 32),
    "bornTimestamp": ("born_timestamp", 64),
    "reconsumeTimes": ("reconsume_times", 32),
    "preparedTransactionOffset": ("prepared_transaction_offset", 64),
}
_DECODERS: dict[str, Callable[[str], bytes]] = {
    "utf8": lambda text: text.encode("utf-8", "surrogateescape"),
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def message_of_line(line: str | bytes, now: int) -> tuple[MessageExtBrokerInner, bool]:
    """The message of a line, and whether it is a copy of a stored one; `now` is its born time where it has none.

    Raises ValueError that says what is wrong with it.
    """
    try:
        row = json.loads(line.decode() if isinstance(line, bytes) else line)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON (dump's -o jsonl is wanted): {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    topic = row.get("topic")
    if not isinstance(topic, str) or not topic:
        raise ValueError("no topic")
    is_copy = "physicalOffset" in row
    if "damage" in row:
        raise ValueError(f"a damaged record ({row['damage']}) is not copied")
    if is_copy and "body" not in row:
        raise ValueError("the line has no body: dump with --body base64")
    numbers = {"born_timestamp": now} | {field: _integer(row, key, bits) for key, (field, bits) in _INTEGERS.items() if key in row}
    numbers["sys_flag"] = numbers.get("sys_flag", 0) & ~(BORNHOST_V6 | STOREHOST_V6)
    message = MessageExtBrokerInner(
        topic=topic,
        body=_body(row),
        properties=_properties(row, is_copy=is_copy),
        born_host=_host(row, "bornHost", BORN_HOST),
        store_host=_host(row, "storeHost", STORE_HOST),
        **numbers,
    )
    return message, is_copy


def new_unique_key() -> str:
    """32 hex digits, as a producer's UNIQ_KEY."""
    return uuid.uuid4().hex.upper()


def _body(row: dict[str, Any]) -> bytes:
    text, encoding = row.get("body", ""), row.get("bodyEncoding", "utf8")
    if not isinstance(text, str) or encoding not in _DECODERS:
        raise ValueError(f"body is no text, or its bodyEncoding is none of {', '.join(_DECODERS)}")
    try:
        return _DECODERS[encoding](text)
    except (ValueError, binascii.Error) as error:
        raise ValueError(f"the body is not {encoding}: {error}") from None


def checked_properties(given: dict[str, str], *, is_copy: bool) -> dict[str, str]:
    """Properties as they can be stored: those without a value left out, a new message's UNIQ_KEY made. Raises ValueError."""
    found = {name: value for name, value in given.items() if name != PROPERTY_CRC and value}
    for name, value in found.items():
        if not name or properties.NAME_VALUE_SEPARATOR in name or properties.PROPERTY_SEPARATOR in name + value:
            raise ValueError(f"property {name!r} holds a character that separates properties")
    if not is_copy and properties.UNIQ_KEY not in found:
        found[properties.UNIQ_KEY] = new_unique_key()
    return found


def _properties(row: dict[str, Any], *, is_copy: bool) -> dict[str, str]:
    given = row.get("properties", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ValueError("properties are no object of texts")
    return checked_properties(given, is_copy=is_copy)


def _integer(row: dict[str, Any], key: str, bits: int) -> int:
    value = row[key]
    if not isinstance(value, int) or isinstance(value, bool) or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(f"{key} is no integer of {bits} bits")
    return value


def _host(row: dict[str, Any], key: str, usual: Host) -> Host:
    text = row.get(key)
    if text is None:
        return usual
    try:
        address, _, port = str(text).rpartition(":")
        return Host(ipaddress.ip_address(address.strip("[]")).packed, _port(port))
    except ValueError:
        raise ValueError(f"{key} is not ADDRESS:PORT") from None


def _port(text: str) -> int:
    port = int(text)
    if not -(2**31) <= port < 2**31:
        raise ValueError(text)
    return port
