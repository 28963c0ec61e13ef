"""The messages to send: of a store, or of lines that `rmqctl dump` printed."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rmqctl.format import host
from rmqctl.format.body.compression import BodyError
from rmqctl.format.encode import properties_to_bytes
from rmqctl.format.message import Message
from rmqctl.operations.append.message_from_json import line_of, message_of_row
from rmqctl.operations.send.outgoing import LeftOut, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmqctl.forensics.dump import Dump
    from rmqctl.operations.send.outgoing import Selection

OFFSETS = range(2**63)


class Source:
    """Yields messages to send, and counts the others.

    `left_out` has the numbers of records that are not to be sent, by the reason; `on_unsendable` hears of each that
    cannot be.
    """

    def __init__(self, selection: Selection, on_unsendable: Callable[[str], None]) -> None:
        self.left_out: Counter[str] = Counter()
        self.unsendable = 0
        self._selection, self._on_unsendable = selection, on_unsendable

    def of_store(self, dump: Dump) -> Iterator[Outgoing]:
        """Yield the messages that a dump selects, in the order of the log."""
        return self._kept(map(self._made, dump.messages()))

    def of_lines(self, lines: Iterable[bytes]) -> Iterator[Outgoing]:
        """Yield the messages of lines that `dump -o jsonl` printed, with their bodies."""
        return self._kept(self._of_line(number, line) for number, line in enumerate(lines, 1) if line.strip())

    def _made(self, message: Message) -> Outgoing | LeftOut | str:
        try:
            return self._selection.outgoing(message)
        except (BodyError, ValueError) as error:
            return f"not sent: the message at {message.physical_offset}: {error}"

    def _of_line(self, number: int, line: bytes) -> Outgoing | LeftOut | str:
        try:
            row = line_of(line)
            if not isinstance(row.physical_offset, int) or row.physical_offset not in OFFSETS:
                raise ValueError("the line has no physicalOffset: `rmqctl dump --body base64 -o jsonl` prints it")
            found = message_of_row(row, time.time_ns() // 1_000_000)
            made = Message(
                row.physical_offset, 0, 0, 0, found.queue_id, found.flag, 0, row.physical_offset, found.sys_flag,
                found.born_timestamp, b"", 0, host.encode(found.store_host), found.reconsume_times,
                found.prepared_transaction_offset, memoryview(found.body),
                found.topic.encode("utf-8", "surrogateescape"),
                properties_to_bytes(found.properties, end_with_separator=False),
            )  # fmt: skip
            return self._selection.outgoing(made)
        except (BodyError, ValueError) as error:
            return f"not sent: line {number}: {error}"

    def _kept(self, found: Iterable[Outgoing | LeftOut | str]) -> Iterator[Outgoing]:
        for one in found:
            if isinstance(one, Outgoing):
                yield one
            elif isinstance(one, LeftOut):
                self.left_out[one.why] += 1
            else:
                self.unsendable += 1
                self._on_unsendable(one)
