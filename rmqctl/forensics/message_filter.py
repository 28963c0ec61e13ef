"""The filter of wanted messages, for one message or for many as columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import eq, ge, le, lt
from typing import TYPE_CHECKING, Any

from rmqctl.format import properties
from rmqctl.format.host import PORT_SIZE, Host, encode
from rmqctl.format.message import HEADS, HOST_V4
from rmqctl.format.sys_flag import BORNHOST_V6, TRANSACTION_MASK, TransactionType, transaction_type
from rmqctl.store.config.topics import TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.body.bodies import BodyMatch
    from rmqctl.format.columns import Flags, Numbers
    from rmqctl.format.message import Damage, Message
    from rmqctl.logfile.column_reader import Columns

_BORN_HOST_AT = HEADS[0].offset("BORNHOST")  # in every record: what comes before has a fixed size
_MUST_BE_DECODED = re.compile("[\ufffd\ud800-\udfff]")  # U+FFFD stands for any wrong bytes, lone surrogates have none


def _must_be_decoded(text: str) -> bool:
    return _MUST_BE_DECODED.search(text) is not None


def _kind(message: Message) -> TransactionType:
    # since 4.3, brokers keep half messages in a separate topic, and clear the transaction bits of SYSFLAG
    kind = transaction_type(message.sys_flag)
    is_half = kind is TransactionType.NONE and message.topic == TRANS_HALF_TOPIC
    return TransactionType.PREPARED if is_half else kind


def _among(numbers: Numbers | int, places: Numbers) -> Flags:
    """Return which `numbers` are in `places`; `places` must be ascending."""
    import numpy as np

    at = np.searchsorted(places, np.atleast_1d(numbers))
    at[at == len(places)] = 0
    return places[at] == numbers if len(places) else np.zeros(len(at), np.bool_)


def _with_host(columns: Columns, host: tuple[bytes, int | None], kept: Flags) -> Flags:
    import numpy as np

    address, port = host
    wanted = np.frombuffer(encode(Host(address, port)) if port is not None else address, np.uint8)
    is_v6 = (columns.rows["sys_flag"] & BORNHOST_V6) != 0
    places = columns.rows["position"][:, None] + (_BORN_HOST_AT + np.arange(len(wanted)))
    same: Flags = (columns.buffer[places] == wanted).all(axis=1) & (is_v6 == (len(address) > HOST_V4 - PORT_SIZE))
    return kept & same


def _of_kind(columns: Columns, kind: TransactionType, kept: Flags) -> Flags:
    import numpy as np

    from rmqctl.kernels import filter_scan

    kinds: Numbers = columns.rows["sys_flag"] & TRANSACTION_MASK
    same: Flags = kinds == kind
    if kind in (TransactionType.NONE, TransactionType.PREPARED):
        half = np.zeros(len(kinds), np.bool_)
        filter_scan.keep_topic(columns.buffer, columns.rows, TRANS_HALF_TOPIC, half)
        half &= kinds == TransactionType.NONE
        same = same | half if kind is TransactionType.PREPARED else same & ~half
    return kept & same


def _of_topics(columns: Columns, topics: frozenset[str], kept: Flags) -> Flags | None:
    import numpy as np

    from rmqctl.kernels import filter_scan

    if any(map(_must_be_decoded, topics)):
        return None
    found = np.zeros(len(kept), np.bool_)
    for topic in topics:
        filter_scan.keep_topic(columns.buffer, columns.rows, topic, found)
    return kept & found


def _with_tag(columns: Columns, tag: str, kept: Flags) -> Flags | None:
    from rmqctl.kernels import filter_scan

    if _must_be_decoded(tag):
        return None
    filter_scan.keep_tag(columns.buffer, columns.rows, tag, kept)
    return kept


def _with_key(columns: Columns, key: str, kept: Flags) -> Flags | None:
    from rmqctl.kernels import filter_scan

    if _must_be_decoded(key):
        return None
    filter_scan.keep_key(columns.buffer, columns.rows, key, kept)
    return kept


def _has_host(message: Message, host: tuple[bytes, int | None]) -> bool:
    found = message.born_host
    return found.address == host[0] and host[1] in (None, found.port)


def _has_key(message: Message, key: str) -> bool:
    found = message.properties
    return key in properties.keys(found) or found.get(properties.UNIQ_KEY) == key


def _tests(
    on_message: Callable[[Message, Any], bool], on_columns: Callable[[Columns, Any, Flags], Flags | None]
) -> dict[str, Any]:
    """Return the tests of a condition.

    `on_columns` gets the rows that earlier conditions keep, and returns those of them that it keeps. It returns None if
    columns cannot tell: then the messages of the rows that are left are tested one by one.
    """
    return {"tests": (on_message, on_columns)}


def _number(name: str, test: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return the tests of a condition. `test` gets a number, or an array."""

    def on_columns(columns: Columns, wanted: Any, kept: Flags) -> Flags:
        is_offset = name == "physical_offset"
        numbers = columns.rows["position"] + columns.physical_offset if is_offset else columns.rows[name]
        both: Flags = kept & test(numbers, wanted)
        return both

    return _tests(lambda message, wanted: bool(test(getattr(message, name), wanted)), on_columns)


@dataclass(frozen=True)
class Filter:
    """The conditions of a selection: a message must meet all that are given.

    Each field is a condition, with its tests. The conditions are tested in this order, the fast ones first.
    """

    queue_id: int | None = field(default=None, metadata=_number("queue_id", eq))
    queue_offset: int | None = field(default=None, metadata=_number("queue_offset", eq))
    queue_offsets: tuple[int, int] | None = field(  # the first and the last
        default=None, metadata=_number("queue_offset", lambda found, ends: (found >= ends[0]) & (found <= ends[1]))
    )
    since: int | None = field(default=None, metadata=_number("store_timestamp", ge))  # in ms, included
    until: int | None = field(default=None, metadata=_number("store_timestamp", le))  # in ms, included
    from_offset: int | None = field(default=None, metadata=_number("physical_offset", ge))  # included
    to_offset: int | None = field(default=None, metadata=_number("physical_offset", lt))  # excluded
    transaction: TransactionType | None = field(
        default=None, metadata=_tests(lambda message, kind: _kind(message) == kind, _of_kind)
    )
    host: tuple[bytes, int | None] | None = field(  # BORNHOST: 4 or 16 bytes, and a port, or None for any
        default=None, metadata=_tests(_has_host, _with_host)
    )
    places: Numbers | None = field(  # physical offsets, int64, ascending
        default=None, compare=False, metadata=_number("physical_offset", _among)
    )
    topics: frozenset[str] = field(
        default=frozenset(), metadata=_tests(lambda message, topics: message.topic in topics, _of_topics)
    )
    tag: str | None = field(
        default=None, metadata=_tests(lambda message, tag: message.properties.get(properties.TAGS) == tag, _with_tag)
    )
    key: str | None = field(default=None, metadata=_tests(_has_key, _with_key))
    body: BodyMatch | None = field(
        default=None, compare=False, metadata=_tests(lambda message, match: match.is_in(message), lambda *_: None)
    )

    def matches(self, message: Message) -> bool:
        """Return whether a message meets every condition."""
        return all(on_message(message, wanted) for on_message, _, wanted in self._given)

    def rows(self, columns: Columns) -> Numbers:
        """Return the rows of the messages that meet every condition (int64, ascending)."""
        import numpy as np

        from rmqctl.kernels import filter_scan
        from rmqctl.kernels.warm_up import runs_plain

        kept: Flags = np.ones(len(columns.rows), np.bool_)
        is_decided = not (self._given and runs_plain(filter_scan))
        for _, on_columns, wanted in self._given if is_decided else ():
            found = on_columns(columns, wanted, kept) if kept.any() else kept
            is_decided &= found is not None
            kept = kept if found is None else found
        rows = np.flatnonzero(kept)
        if is_decided:
            return rows
        return np.array([row for row in rows.tolist() if self.matches(columns.message(row))], np.int64)

    def touches(self, damage: Damage) -> bool:
        """Return whether damage overlaps the selected range of physical offsets."""
        after = self.from_offset is None or damage.end > self.from_offset or damage.physical_offset >= self.from_offset
        return after and (self.to_offset is None or damage.physical_offset < self.to_offset)

    @cached_property
    def _given(self) -> list[tuple[Callable[[Message, Any], bool], Callable[..., Flags | None], Any]]:
        wanted = [(condition, getattr(self, condition.name)) for condition in fields(self)]
        return [
            (*condition.metadata["tests"], value)
            for condition, value in wanted
            if value is not None and not (isinstance(value, frozenset) and not value)
        ]
