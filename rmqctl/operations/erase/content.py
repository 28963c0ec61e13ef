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
_PIECE_BITS = 24
_PIECE_SHIFT = np.uint64(64 - _PIECE_BITS)


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
    """Finds texts in data, each by its rarest window of 8 bytes."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        texts = list(texts)
        self._of_window: dict[int, list[tuple[bytes, int]]] = {}  # the texts with these bytes, and where
        counts = np.zeros(1 << _BITS, np.int64)  # a window of few texts tells most: keys and bodies begin alike
        for text in texts:
            np.add.at(counts, _hashes(_telling(text)[1]), 1)
        for text in texts:
            places, numbers = _telling(text)
            if len(numbers):
                rarest = int(counts[_hashes(numbers)].argmin())
                at, number = int(places[rarest]), int(numbers[rarest])
            else:
                at, number = 0, int.from_bytes(text[:8], "big")
            self._of_window.setdefault(number, []).append((text, at))
        self._is_hash = np.zeros(1 << _BITS, np.bool_)  # most bytes are sorted out by it
        self._is_hash[_hashes(np.array(list(self._of_window), np.uint64))] = True

    def texts(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield where `data` has a text, in no order."""
        for shift in range(min(8, max(len(data) - 7, 0)) if self._of_window else 0):
            numbers = np.frombuffer(data, _WINDOW, (len(data) - shift) // 8, shift).astype(np.uint64)
            for row in np.flatnonzero(self._is_hash[_hashes(numbers)]).tolist():
                for text, at in self._of_window.get(int(numbers[row]), ()):
                    place = row * 8 + shift - at
                    if place >= 0 and data.startswith(text, place):
                        yield place, text


class Pieces:
    """Finds what equals a text, or 16 bytes or more of one.

    Of such a piece, each 16 bytes are 16 bytes of the text: a table of them finds it in one pass.
    """

    def __init__(self, texts: Iterable[bytes]) -> None:
        texts = list(texts)
        self._short = Search(text for text in texts if len(text) < PIECE_MIN)
        pieces = [np.unique(_pieces(text)) for text in texts]
        self._pieces = np.unique(np.concatenate([np.zeros(1, np.uint64), *pieces]))[1:]  # 0: zero bytes
        self._is_hash = np.zeros(1 << _PIECE_BITS, np.bool_)
        self._is_hash[self._pieces >> _PIECE_SHIFT] = True

    def ranges(self, data: bytes) -> list[tuple[int, int]]:
        """Return the ranges of `data`, ascending and apart."""
        pieces = _pieces(data)
        places = np.flatnonzero(self._is_hash[pieces >> _PIECE_SHIFT])
        found = pieces[places]
        at = np.minimum(np.searchsorted(self._pieces, found), len(self._pieces) - 1)
        places = places[self._pieces[at] == found]
        is_first = np.diff(places, prepend=-1 - PIECE_MIN) > PIECE_MIN
        starts, ends = places[is_first], places[np.append(is_first[1:], True)[: len(places)]] + PIECE_MIN
        whole = [(place, place + len(text)) for place, text in self._short.texts(data)]
        return merged([*whole, *zip(starts.tolist(), ends.tolist(), strict=True)])


def _pieces(data: bytes) -> NDArray[np.uint64]:
    """Return a hash of the 16 bytes at each place."""
    raw = np.frombuffer(data, np.uint8)
    if len(raw) < PIECE_MIN:
        return np.zeros(0, np.uint64)
    windows = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(raw, 8)).view(np.uint64)[:, 0]
    hashed: NDArray[np.uint64] = (windows[:-8] * _HASH ^ windows[8:]) * _HASH
    return hashed


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


def is_word(data: bytes, begin: int, end: int) -> bool:
    """Return whether [begin, end) of `data` is no part of a longer word.

    order-7 is part of order-71.
    """
    goes_on_before = begin > 0 and data[begin - 1 : begin + 1].isalnum()
    return not goes_on_before and not (end < len(data) and data[end - 1 : end + 1].isalnum())
