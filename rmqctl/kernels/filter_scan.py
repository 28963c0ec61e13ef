"""Find the records that have a given topic, tag or key, by comparing bytes.

The text must be encodable as UTF-8, and must not contain U+FFFD, as which the decoder shows bytes that are not UTF-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Flags, Numbers, Row, Rows


import numpy as np

from rmqctl.kernels.dispatch_scan import KEYS, TAGS, UNIQUE, find_values, no_spans
from rmqctl.kernels.kernel import inline_kernel, kernel
from rmqctl.kernels.scan import RECORD_COLUMNS


@inline_kernel
def _same(buffer: Bytes, start: int, end: int, text: Bytes) -> bool:
    if end - start != len(text):
        return False
    same = True
    for i in range(len(text)):
        same = same and buffer[start + i] == text[i]
    return same


@kernel
def _keep_topic(buffer: Bytes, rows: Rows, topic: Bytes, kept: Flags) -> None:
    for i in range(len(rows)):
        row = rows[i]
        end = row.position + row.size - row.properties_length - 2
        kept[i] = kept[i] or _same(buffer, end - row.topic_length, end, topic)


@inline_kernel
def _find_values_of(buffer: Bytes, row: Row, spans: Numbers) -> None:
    end = row.position + row.size
    find_values(buffer, end - row.properties_length, end, spans)


@kernel
def _keep_tag(buffer: Bytes, rows: Rows, tag: Bytes, kept: Flags, spans: Numbers) -> None:
    for i in range(len(rows)):
        if kept[i]:
            _find_values_of(buffer, rows[i], spans)
            kept[i] = spans[TAGS, 1] > 0 and _same(buffer, spans[TAGS, 0], spans[TAGS, 1], tag)


@kernel
def _keep_key(buffer: Bytes, rows: Rows, key: Bytes, kept: Flags, spans: Numbers) -> None:
    for i in range(len(rows)):
        if kept[i]:
            _find_values_of(buffer, rows[i], spans)
            found = spans[UNIQUE, 1] > 0 and _same(buffer, spans[UNIQUE, 0], spans[UNIQUE, 1], key)
            p = spans[KEYS, 0]
            while not found and p < spans[KEYS, 1]:
                word = p
                while p < spans[KEYS, 1] and buffer[p] != 32:
                    p += 1
                found = p > word and _same(buffer, word, p, key)
                p += 1
            kept[i] = found


def _bytes_of(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)


def keep_topic(buffer: Bytes, rows: Rows, topic: str, kept: Flags) -> None:
    """Set `kept` for each row that has the given topic; clear none.

    `kept` (bool) has one element for each row of `rows` (RECORD_COLUMNS).
    """
    _keep_topic(buffer, rows, _bytes_of(topic), kept)


def keep_tag(buffer: Bytes, rows: Rows, tag: str, kept: Flags) -> None:
    """Clear `kept` for each row that has no TAGS, or whose TAGS differ from `tag`."""
    _keep_tag(buffer, rows, _bytes_of(tag), kept, no_spans())


def keep_key(buffer: Bytes, rows: Rows, key: str, kept: Flags) -> None:
    """Clear `kept` for each row where `key` is neither UNIQ_KEY nor a word of KEYS."""
    _keep_key(buffer, rows, _bytes_of(key), kept, no_spans())


def warm_up() -> None:
    """Compile or load each kernel of this module, by a call with empty input."""
    for keep in (keep_topic, keep_tag, keep_key):
        keep(np.zeros(0, np.uint8), np.empty(0, RECORD_COLUMNS), "", np.zeros(0, np.bool_))
