"""The filter of wanted messages.

The filter works for one message, and for many messages as columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.format import properties
from rmqctl.format.body.bodies import BodyMatch
from rmqctl.format.host import PORT_SIZE, Host, encode
from rmqctl.format.message import HEADS, HOST_V4
from rmqctl.format.sys_flag import BORNHOST_V6, TRANSACTION_MASK, TransactionType, transaction_type
from rmqctl.store.config.topics import TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from rmqctl.format.columns import Flags, Numbers
    from rmqctl.format.message import Damage, Message
    from rmqctl.logfile.column_reader import Columns

_BORN_HOST_AT = HEADS[0].offset("BORNHOST")  # in every record: what comes before has a fixed size
_MUST_BE_DECODED = re.compile("[\ufffd\ud800-\udfff]")


def _must_be_decoded(text: str) -> bool:
    """Return whether a text cannot be compared as UTF-8 bytes.

    Decoding replaces all bytes that are not UTF-8 by U+FFFD. UTF-8 has no bytes for lone surrogates.
    """
    return _MUST_BE_DECODED.search(text) is not None


def _kind(message: Message) -> TransactionType:
    """Return the transaction kind of a message.

    Since 4.3, brokers keep half messages in a separate topic, and clear the transaction bits of SYSFLAG.
    """
    kind = transaction_type(message.sys_flag)
    is_half = kind is TransactionType.NONE and message.topic == TRANS_HALF_TOPIC
    return TransactionType.PREPARED if is_half else kind


def _among(numbers: Numbers, places: Numbers) -> Flags:
    """Return which `numbers` are in `places`; `places` must be ascending."""
    import numpy as np

    at = np.searchsorted(places, numbers)
    at[at == len(places)] = 0
    return places[at] == numbers if len(places) else np.zeros(len(numbers), np.bool_)


@dataclass(frozen=True)
class Filter:
    """A condition for messages, which consists of several parts.

    A message must meet every given part. Times are in ms, both ends included. A message must begin at a physical offset
    in [`from_offset`, `to_offset`). `queue_offset` is in units. `queue_offsets` is a range of queue offsets, both ends
    included. `host` is BORNHOST: an address of 4 or 16 bytes, and a port, or None for any. `places` are physical
    offsets (int64, ascending).
    """

    topics: frozenset[str] = frozenset()
    queue_id: int | None = None
    queue_offset: int | None = None
    queue_offsets: tuple[int, int] | None = None
    key: str | None = None
    tag: str | None = None
    host: tuple[bytes, int | None] | None = None
    since: int | None = None
    until: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    transaction: TransactionType | None = None
    body: BodyMatch | None = field(default=None, compare=False)
    places: Numbers | None = field(default=None, compare=False)

    def matches(self, message: Message) -> bool:
        """Return whether a message meets every condition.

        Conditions that are fast to check are checked first.
        """
        return (
            (self.queue_id is None or message.queue_id == self.queue_id)
            and (self.queue_offset is None or message.queue_offset == self.queue_offset)
            and (self.queue_offsets is None or self.queue_offsets[0] <= message.queue_offset <= self.queue_offsets[1])
            and (self.since is None or message.store_timestamp >= self.since)
            and (self.until is None or message.store_timestamp <= self.until)
            and (self.from_offset is None or message.physical_offset >= self.from_offset)
            and (self.to_offset is None or message.physical_offset < self.to_offset)
            and (self.transaction is None or _kind(message) == self.transaction)
            and (self.host is None or self._is_host(message.born_host))
            and self._is_place(message.physical_offset)
            and (not self.topics or message.topic in self.topics)
            and self._has_properties(message)
            and (self.body is None or self.body.is_in(message))
        )

    def rows(self, columns: Columns) -> Numbers:
        """Return the rows of the messages that meet every condition (int64, ascending)."""
        import numpy as np

        kept = self._by_numbers(columns)
        if kept.any():
            self._by_texts(columns, kept)
        rows = np.flatnonzero(kept)
        if self.body is None and not any(
            _must_be_decoded(text) for text in (*self.topics, self.key or "", self.tag or "")
        ):
            return rows
        return np.array([row for row in rows.tolist() if self.matches(columns.message(row))], np.int64)

    def touches(self, damage: Damage) -> bool:
        """Return whether damage overlaps the selected range of physical offsets."""
        after = self.from_offset is None or damage.end > self.from_offset or damage.physical_offset >= self.from_offset
        return after and (self.to_offset is None or damage.physical_offset < self.to_offset)

    def _by_numbers(self, columns: Columns) -> Flags:
        """Return which rows meet the conditions on numbers (bool, one for each row)."""
        import numpy as np

        rows = columns.rows
        kept = np.ones(len(rows), np.bool_)
        if self.queue_id is not None:
            kept &= rows["queue_id"] == self.queue_id
        if self.queue_offset is not None:
            kept &= rows["queue_offset"] == self.queue_offset
        if self.queue_offsets is not None:
            first, last = self.queue_offsets
            kept &= (rows["queue_offset"] >= first) & (rows["queue_offset"] <= last)
        if self.places is not None:
            kept &= _among(rows["position"] + columns.physical_offset, self.places)
        if self.since is not None:
            kept &= rows["store_timestamp"] >= self.since
        if self.until is not None:
            kept &= rows["store_timestamp"] <= self.until
        if self.from_offset is not None:
            kept &= rows["position"] >= self.from_offset - columns.physical_offset
        if self.to_offset is not None:
            kept &= rows["position"] < self.to_offset - columns.physical_offset
        if self.transaction is not None:
            kept &= self._by_kind(columns)
        if self.host is not None:
            kept &= self._by_host(columns)
        return kept

    def _is_host(self, host: Host) -> bool:
        return self.host is not None and host.address == self.host[0] and self.host[1] in (None, host.port)

    def _by_host(self, columns: Columns) -> Flags:
        """Return which rows have the wanted BORNHOST (bool, one for each row)."""
        import numpy as np

        address, port = self.host or (b"", None)
        wanted = np.frombuffer(encode(Host(address, port)) if port is not None else address, np.uint8)
        is_v6 = (columns.rows["sys_flag"] & BORNHOST_V6) != 0
        places = columns.rows["position"][:, None] + (_BORN_HOST_AT + np.arange(len(wanted)))
        kept: Flags = (columns.buffer[places] == wanted).all(axis=1) & (is_v6 == (len(address) > HOST_V4 - PORT_SIZE))
        return kept

    def _by_kind(self, columns: Columns) -> Flags:
        """Return which rows have the wanted transaction kind (`_kind`).

        The array has one bool for each row.
        """
        import numpy as np

        from rmqctl.kernels import filter_scan

        kinds: Numbers = columns.rows["sys_flag"] & TRANSACTION_MASK
        if self.transaction not in (TransactionType.NONE, TransactionType.PREPARED):
            same: Flags = kinds == self.transaction
            return same
        half = np.zeros(len(kinds), np.bool_)
        filter_scan.keep_topic(columns.buffer, columns.rows, TRANS_HALF_TOPIC, half)
        none = np.equal(kinds, TransactionType.NONE)
        prepared = np.equal(kinds, TransactionType.PREPARED) | (none & half)
        return prepared if self.transaction is TransactionType.PREPARED else none & ~half

    def _by_texts(self, columns: Columns, kept: Flags) -> None:
        """Set `kept` to False for rows with another topic, tag or key.

        The function ignores texts that must be decoded (`_must_be_decoded`).
        """
        import numpy as np

        from rmqctl.kernels import filter_scan

        if self.topics and not any(_must_be_decoded(topic) for topic in self.topics):
            of_topics = np.zeros(len(kept), np.bool_)
            for topic in self.topics:
                filter_scan.keep_topic(columns.buffer, columns.rows, topic, of_topics)
            kept &= of_topics
        if self.tag is not None and not _must_be_decoded(self.tag):
            filter_scan.keep_tag(columns.buffer, columns.rows, self.tag, kept)
        if self.key is not None and not _must_be_decoded(self.key):
            filter_scan.keep_key(columns.buffer, columns.rows, self.key, kept)

    def _is_place(self, physical_offset: int) -> bool:
        import numpy as np

        return self.places is None or bool(_among(np.array([physical_offset]), self.places)[0])

    def _has_properties(self, message: Message) -> bool:
        if self.key is None and self.tag is None:
            return True
        found = message.properties
        if self.tag is not None and found.get(properties.TAGS) != self.tag:
            return False
        return self.key is None or self.key in properties.keys(found) or found.get(properties.UNIQ_KEY) == self.key
