"""What a store must not have after `erase`, and where it has it.

A text of fewer than 8 bytes is not searched: it would be found everywhere.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format import properties
from rmqctl.format.body.bodies import Bodies, BodyMatch
from rmqctl.operations.placeholder.record import NOT_OF_USERS
from rmqctl.store.journal.pre_image import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rmqctl.format.message import Message

SIZE_MIN = 8  # bytes of a text that is searched
PIECE_MIN = 16  # bytes of a piece of a text
BODY, KEY = "body", "key"
_WINDOW = np.dtype(">u8")
_HASH, _BITS = np.uint64(0x9E3779B97F4A7C15), 20


class TextMatch(BodyMatch):
    """The condition that a record has a text in its body, keys or properties."""

    def __init__(self, text: bytes) -> None:
        super().__init__(re.escape(text))
        self._in_properties = text

    def is_in(self, message: Message) -> bool:
        """Return whether a record has the text."""
        return self._in_properties in message.properties_bytes or super().is_in(message)


class Content:
    """The texts of the erased messages.

    `texts` has bodies and keys, by their bytes, with their kind; `pairs` properties, which are searched only where no
    record is: other messages may have the same. `short` counts the texts that are too short.
    """

    def __init__(self) -> None:
        self.texts: dict[bytes, str] = {}
        self.pairs: set[bytes] = set()
        self.unique_keys: set[str] = set()
        self.short = 0
        self._bodies = Bodies()

    def add(self, message: Message) -> None:
        """Add a message that is erased."""
        for body in {bytes(message.body), self._bodies.plain(message)[0]}:
            self.add_text(body, BODY)
        found = message.properties
        if unique := found.get(properties.UNIQ_KEY):
            self.unique_keys.add(unique)
            self.add_text(unique.encode(), KEY)
        for word in properties.keys(found):
            self.add_text(word.encode(), KEY)
        self.pairs |= set(filter(_is_of_user, message.properties_bytes.split(b"\x02")))

    def add_text(self, text: bytes, kind: str) -> None:
        """Add a body or a key."""
        if len(text) >= SIZE_MIN:
            self.texts.setdefault(text, kind)
        elif text:
            self.short += 1


def _is_of_user(pair: bytes) -> bool:
    name = pair.partition(b"\x01")[0]
    return name not in NOT_OF_USERS and len(pair) >= (SIZE_MIN if name == b"KEYS" else PIECE_MIN)


class Search:
    """Finds texts in data, and pieces of them, by windows of 8 bytes."""

    def __init__(self, texts: Iterable[bytes], *, pieces: bool = False) -> None:
        texts = list(texts)
        self._of_window: dict[int, dict[object, tuple[bytes, int]]] = {}  # the texts with these bytes, and where
        counts = np.zeros(1 << _BITS, np.int64)  # a window of few texts tells most: keys and bodies begin alike
        for text in texts if not pieces else ():
            np.add.at(counts, _hashes(_telling(text)[1]), 1)
        for text in texts:
            places, numbers = _telling(text)
            if not pieces and len(numbers):
                rarest = int(counts[_hashes(numbers)].argmin())
                places, numbers = places[rarest : rarest + 1], numbers[rarest : rarest + 1]
            elif not pieces:
                places, numbers = np.zeros(1, np.int64), np.frombuffer(text, _WINDOW, 1).astype(np.uint64)
            for at, number in zip(places.tolist(), numbers.tolist(), strict=True):
                before = min(at, PIECE_MIN)
                # of texts that are alike around a window, one is enough: their next windows find what differs
                around = (before, text[at - before : at + 8 + PIECE_MIN]) if pieces else text
                self._of_window.setdefault(number, {}).setdefault(around, (text, at))
        self._windows = np.array(sorted(self._of_window), np.uint64)
        self._is_hash = np.zeros(1 << _BITS, np.bool_)  # most bytes are sorted out by it
        self._is_hash[_hashes(self._windows)] = True

    def texts(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield where `data` has a text, in no order."""
        for place, text, at in self._hits(data):
            if data.startswith(text, place - at) and place >= at:
                yield place - at, text

    def ranges(self, data: bytes) -> list[tuple[int, int]]:
        """Return the ranges of `data` that equal a text, or 16 bytes or more of one."""
        return merged(found for hit in self._hits(data) for found in _extended(data, *hit))

    def _hits(self, data: bytes) -> Iterator[tuple[int, bytes, int]]:
        for shift in range(min(8, max(len(data) - 7, 0)) if len(self._windows) else 0):
            numbers = np.frombuffer(data, _WINDOW, (len(data) - shift) // 8, shift).astype(np.uint64)
            for row in np.flatnonzero(self._is_hash[_hashes(numbers)]).tolist():
                for text, at in self._of_window.get(int(numbers[row]), {}).values():
                    yield row * 8 + shift, text, at


def _telling(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return where the windows of a text are, and their numbers.

    Windows of one byte are left out: they are everywhere.
    """
    places = np.append(np.arange(0, len(text) - 7, 8), len(text) - 8)
    starts = np.frombuffer(text, _WINDOW, len(text) // 8), np.frombuffer(text, _WINDOW, 1, len(text) - 8)
    numbers = np.concatenate(starts).astype(np.uint64)
    is_telling = numbers != (numbers & np.uint64(255)) * np.uint64(0x0101010101010101)
    return places[is_telling], numbers[is_telling]


def _hashes(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    hashed: NDArray[np.uint64] = numbers * _HASH >> np.uint64(64 - _BITS)
    return hashed


def _extended(data: bytes, place: int, text: bytes, at: int) -> Iterator[tuple[int, int]]:
    before, after = 0, 8
    while before < min(at, place) and data[place - before - 1] == text[at - before - 1]:
        before += 1
    while at + after < len(text) and place + after < len(data) and data[place + after] == text[at + after]:
        after += 1
    if before + after >= min(PIECE_MIN, len(text)):
        yield place - before, place + after


def is_word(data: bytes, begin: int, end: int) -> bool:
    """Return whether [begin, end) of `data` is no part of a longer word.

    order-7 is part of order-71.
    """
    goes_on_before = begin > 0 and data[begin - 1 : begin + 1].isalnum()
    return not goes_on_before and not (end < len(data) and data[end - 1 : end + 1].isalnum())
