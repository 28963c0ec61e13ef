"""The types of values in config/*.json, as a broker's fastjson reads them.

They are those that rmqctl uses, and accept the same values as the brokers 4.9.7 (fastjson 1.2.69) and 5.3.3 (fastjson
1.2.83).

A number may be written as text ("4"), with a fraction (1.5 is read as 1) or as true (1). In a text, fastjson ignores
commas, and that of an int may end with a point and zeros ("1,000.0"). A field of an object with the value null, "" or
"null" gets the broker's default.

If a number, an object or a map has a value of a wrong type, or a map contains a null, the broker deletes the config
file and reads its .bak. Fields without a type in this module may have any value, and are kept unchanged.

Queue numbers and queueIds have the Java type int, offsets the Java type long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Kind = Callable[[Any, str], Any]
"""Returns the value as a broker reads it; None for a default.

Raises ValueError if a broker would not accept the value. The error gives the place of the value.
"""

_DIGITS = {32: re.compile(r"([+-]?\d{1,20})(?:\.0*)?"), 64: re.compile(r"([+-]?\d{1,20})")}
_NOTHING = (None, "", "null", "NULL")
_FLAGS = {"true": True, "1": True, "y": True, "t": True, "false": False, "0": False, "n": False, "f": False}


def _number(bits: int) -> Kind:
    least, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def kind(value: Any, place: str) -> int | None:
        if type(value) is int and least <= value <= largest:  # nearly each: a file may have 50,000 topics
            return value
        if value in _NOTHING:
            return None
        text = _DIGITS[bits].fullmatch(value.replace(",", "")) if isinstance(value, str) else None
        if text is None and not isinstance(value, int | float):
            raise ValueError(f"{place} is {_shown(value)}, not a number")
        number = int(value if text is None else text[1])
        if not least <= number <= largest:
            raise ValueError(f"{place} is {number}, which has more than {bits} bits")
        return number

    return kind


def _flag(value: Any, place: str) -> bool | None:
    if isinstance(value, bool):
        return value
    if value in _NOTHING:
        return None
    if isinstance(value, int | float):
        return int(value) == 1
    if not isinstance(value, str) or value.lower() not in _FLAGS:
        raise ValueError(f"{place} is {_shown(value)}, not true or false")
    return _FLAGS[value.lower()]


def _data_version(value: Any, place: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if value in (None, "", []) else _DATA_VERSION(value, place)
    return found


def _anything(value: Any, _: str) -> Any:
    return value


def _object(fields: Mapping[str, Kind]) -> Kind:
    def kind(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{place} is {_shown(value)}, not an object")
        prefix = f"{place}." if place else ""
        found = dict(value)
        for name, kind_of_field in fields.items():
            if name in value:
                read = kind_of_field(value[name], prefix + name)
                if read is None:
                    del found[name]
                else:
                    found[name] = read
        return found

    return kind


def _map(of: Kind, key_bits: int | None = None) -> Kind:
    def kind(value: Any, place: str) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"{place} is {_shown(value)}, not an object")
        found = {}
        for key, item in value.items():
            read = of(item, f"{place}[{key!r}]")
            if read is None:
                raise ValueError(f"{place}[{key!r}] is {_shown(item)}")
            found[key if key_bits is None else _number_key(key, key_bits, place)] = read
        return found

    return kind


def _number_key(key: str, bits: int, place: str) -> str:
    """Return the key of a map as a plain number: "10" for "+10" and "1,0".

    Raises ValueError if it is not a number.
    """
    number = _number(bits)(key, f"a key of {place}")
    if number is None:
        raise ValueError(f"a key of {place} is {_shown(key)}, not a number")
    return str(number)


def _shown(value: Any) -> str:
    names = {list: "a list", dict: "an object", type(None): "null", bool: str(value).lower()}
    return names.get(type(value), repr(value) if len(repr(value)) < 40 else "a long text")


INT, LONG = _number(32), _number(64)
_DATA_VERSION = _object({"counter": LONG, "timestamp": LONG, "stateVersion": LONG})
VERSION: dict[str, Kind] = {"dataVersion": _data_version}
TOPIC = _object(
    {
        "readQueueNums": INT,
        "writeQueueNums": INT,
        "perm": INT,
        "topicSysFlag": INT,
        "order": _flag,
        "attributes": _map(_anything),
    }
)
GROUP = _object(
    {"retryQueueNums": INT, "retryMaxTimes": INT, "brokerId": LONG, "whichBrokerWhenConsumeSlowly": LONG}
    | dict.fromkeys(("consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "consumeMessageOrderly"), _flag)
)
OFFSETS = {"offsetTable": _map(_map(LONG, 32))}
FILES: dict[str, Kind] = {
    "topics.json": _object(VERSION | {"topicConfigTable": _map(TOPIC)}),
    "consumerOffset.json": _object(VERSION | OFFSETS),
    "lmqConsumerOffset.json": _object(VERSION | OFFSETS | {"lmqOffsetTable": _map(LONG)}),
    "delayOffset.json": _object(VERSION | {"offsetTable": _map(LONG, 32)}),
    "subscriptionGroup.json": _object(VERSION | {"subscriptionGroupTable": _map(GROUP)}),
}


def as_broker_reads(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the file config/`name` as a broker reads it.

    Raises ValueError if a broker takes the file as not valid; its text gives the place in the file and the reason.
    """
    found: dict[str, Any] = FILES.get(name, _anything)(content, "")
    return found
