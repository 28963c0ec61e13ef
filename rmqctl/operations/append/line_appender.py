"""Append the messages of JSON Lines to a store.

A kernel encodes many plain lines in one call. Any other line is parsed separately, without the kernel.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.operations.append.appender import PUT_AT_ONCE, Appender, Refused
from rmqctl.operations.append.message_from_json import message_of_line
from rmqctl.store.config.topics import is_delivery_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.operations.append.line_encoder import LineEncoder
    from rmqctl.store.config.topics import QueueKey

_LINE_END = re.compile(b"\n")
SHORT_RUN = 8  # lines: the kernel is not faster for fewer lines


@dataclass
class LineAppender:
    """Reads messages from JSON Lines, and passes them to `appender`.

    `appender.on_refused` is called for each line that is not a message. Lines are ignored once `is_over` returns True,
    or the appender has ended.
    """

    appender: Appender
    now: Callable[[], int]  # returns the born time of messages without one (ms since 1970)
    encoder: LineEncoder | None = None  # None: the lines are parsed one by one
    is_over: Callable[[], bool] = lambda: False
    # else messages of topics by which a broker delivers again are left out (`is_delivery_topic`)
    with_system_topics: bool = False
    left_out: Counter[str] = field(default_factory=Counter)  # their number by topic
    _taken: int = 0  # lines
    _one_by_one: int = 1  # number of lines to parse one by one where the kernel stops

    @property
    def takes_no_more(self) -> bool:
        """Whether further lines are ignored."""
        return self.appender.ended is not None or self.is_over()

    @property
    def next_line(self) -> int:
        """The number, from 1, of the first line that is neither stored nor refused.

        A later run resumes there.
        """
        ended = self.appender.ended
        return self._taken + 1 if ended is None else ended.lines[0]

    def put(self, lines: bytes | memoryview) -> None:
        """Put the messages of the next lines. The last line may lack a line feed.

        A memoryview must be writable, and is not copied.
        """
        if self.encoder is None:
            self._put_each(bytes(lines))
        else:
            self._put_block(lines if isinstance(lines, memoryview) else memoryview(bytearray(lines)), self.encoder)
        self.appender.finish()

    def _put_each(self, lines: bytes) -> None:
        for line in lines.removesuffix(b"\n").split(b"\n"):
            if self.takes_no_more:
                return
            self._put_line(line)

    def _put_line(self, line: bytes) -> QueueKey | None:
        # returns the line's queue, or None if nothing was put
        self._taken += 1
        if not line or line.isspace():
            return None
        try:
            message, is_copy = message_of_line(line, self.now())
        except ValueError as error:
            self.appender.finish()  # the results of lines are reported in line order
            if self.appender.ended is None:
                self.appender.on_refused(Refused((self._taken,), str(error)))
            return None
        if is_delivery_topic(message.topic) and not self.with_system_topics:
            self.left_out[message.topic] += 1
            return None
        self.appender.put(self._taken, message, is_copy=is_copy)
        return message.topic, message.queue_id

    def _put_block(self, block: memoryview, encoder: LineEncoder) -> None:
        lines, position = np.frombuffer(block, np.uint8), 0
        while position < len(block) and not self.takes_no_more:
            run = encoder.encode(lines, position)
            count = len(run.rows)
            if count:
                self.appender.finish()
                first, self._taken = self._taken + 1, self._taken + count
                self.appender.put_encoded(first, run)
            self._one_by_one = 1 if count > SHORT_RUN else min(2 * self._one_by_one, PUT_AT_ONCE)
            position = self._put_some(block, run.end, encoder)

    def _put_some(self, block: memoryview, position: int, encoder: LineEncoder) -> int:
        # returns the byte position after the last line
        for _ in range(self._one_by_one):
            if position == len(block) or self.takes_no_more:
                break
            found = _LINE_END.search(block, position)
            end = len(block) if found is None else found.end()
            key = self._put_line(bytes(block[position:end]))
            if key is not None:
                encoder.add_queue(key)
            position = end
        return position
