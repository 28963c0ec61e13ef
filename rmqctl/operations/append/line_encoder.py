"""Encode plain JSON Lines as records of the commit log, with a kernel.

`rmqctl.kernels.line_parse` defines which lines are plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format import host
from rmqctl.format.message import MIN_SIZE
from rmqctl.kernels import line_encode
from rmqctl.kernels.dispatch_scan import QueueTable
from rmqctl.kernels.scan import RECORD_COLUMNS
from rmqctl.kernels.warm_up import warm_up
from rmqctl.operations.append.message_from_json import BORN_HOST, STORE_HOST, UNIQUE_KEYS
from rmqctl.store.write.put_message import EncodedLines

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.engine.message_store import MessageStore
    from rmqctl.store.write.put_message import EncodingRules

RECORDS_AT_ONCE = 2 * 1024 * 1024  # bytes


class LineEncoder:
    """Encodes JSON Lines whose queues were passed to `add_queue`.

    `rules` are the encoding rules of the store that receives the records.
    """

    def __init__(self, rules: EncodingRules) -> None:
        self.warm_up()
        unique = np.frombuffer(bytearray(UNIQUE_KEYS.process_part.encode()), np.uint8)
        self._rules = line_encode.LineRules(
            rules.ends_properties_with_separator, rules.body_max, rules.record_max, unique
        )
        self._takes = rules.takes
        self._now = rules.now
        self._hosts = host.encode(BORN_HOST), host.encode(STORE_HOST)
        self._table = QueueTable()
        self._known: set[QueueKey] = set()
        self._queues: list[QueueKey] = []
        self._records = np.empty(RECORDS_AT_ONCE, np.uint8)
        self._rows = np.empty(RECORDS_AT_ONCE // MIN_SIZE, RECORD_COLUMNS)
        self._numbers = np.empty(len(self._rows), np.int32)

    @staticmethod
    def warm_up() -> None:
        """Compile or load the kernels before an encoder is created."""
        warm_up(line_encode)

    def add_queue(self, key: QueueKey) -> None:
        """Accept lines of the queue `key`, if the kernel can encode them."""
        if key in self._known or not self._takes(key):
            return
        self._table.add(key[0].encode(), key[1], len(self._queues))
        self._known.add(key)
        self._queues.append(key)

    def encode(self, lines: Bytes, position: int) -> EncodedLines:
        """Encode lines from byte `position` up to the first line that is not plain.

        `lines` is a writable array of uint8.
        """
        defaults = line_encode.defaults_of(self._now(), *self._hosts)
        counter = UNIQUE_KEYS.counter
        end, count, UNIQUE_KEYS.counter = line_encode.encode(
            lines, position, defaults, self._table, self._rules, counter, self._records, self._rows, self._numbers
        )
        return EncodedLines(self._records, self._rows[:count], self._numbers[:count], self._queues, end)


def encoder_of(store: MessageStore) -> LineEncoder | None:
    """Return the encoder for the lines of a store, or None.

    It has none if records have `__CRC32#`, because this checksum depends on the record's physical offset.
    """
    rules = store.encoding_rules()
    return None if rules is None else LineEncoder(rules)
