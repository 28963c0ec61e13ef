"""Damaged records of which the store has another record of the same message.

A message is stored again when its transaction is committed, when its delay or its timer ends, when a consumer sends it
back, and when it becomes a dead letter. In what the two records differ is the same for all messages that went this way,
and is learned from those that are whole. The unit says the damaged record's topic, queue, place and size.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.forensics.witness.usual import RESERVED_NAMES
from rmqctl.format import encode, host
from rmqctl.format.index_entry import key_hashes
from rmqctl.format.message import HEADS, Message
from rmqctl.format.properties import CRC32
from rmqctl.store.config.topics import TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.forensics.witness.pointers import Pointers
    from rmqctl.forensics.witness.usual import Beside
    from rmqctl.store.read.commit_log import CommitLog

COPIES_MAX = EXAMPLES_MAX = 8
EXAMPLES_MIN = 2
KNOWN_MAX = 4096  # records of a topic among which examples are looked for
CHANCE = 8  # in a damaged part, less than one byte in so many has the right value
SECOND = 1000  # ms
TIME_DIGITS = 13  # of a time in ms
_UNIQUE = re.compile(rb"UNIQ_KEY\x01([^\x01\x02]+)")


class Spot(NamedTuple):
    """A damaged record that a unit leads to."""

    pointers: Pointers
    raw: bytes  # as many as the unit says
    beside: tuple[Beside | None, Beside | None]

    @property
    def place(self) -> int:
        """The physical offset."""
        return self.pointers.physical_offset

    @property
    def topic(self) -> str:
        """The topic of the unit's queue."""
        return self.pointers.units[0][0][0]

    @property
    def queue_id(self) -> int:
        """The queueId of the unit's queue."""
        return self.pointers.units[0][0][1]


class Pair(NamedTuple):
    """Two whole records of one message, an example of a copy and its other."""

    copy: Message
    other: Message


class Built(NamedTuple):
    """A record made from its copy."""

    content: bytes
    copied_from: int  # physical offset of the copy
    near: tuple[str, ...]  # fields that are not exact: of times, the nearest that are known


class Copies:
    """Other records of the messages at `spots`.

    One pass of the log finds them, and a second one examples of such pairs.
    """

    def __init__(self, log: CommitLog, spots: Sequence[Spot]) -> None:
        self._log = log
        self._copies: dict[int, list[Message]] = defaultdict(list)
        self._examples: dict[tuple[str, str, bool, frozenset[str]], list[Pair]] = defaultdict(list)
        self._find_copies(spots)
        wanted = {frozenset((copy.topic, spot.topic)) for spot in spots for copy in self._copies.get(spot.place, ())}
        if wanted:
            self._find_examples(wanted)

    def _find_copies(self, spots: Sequence[Spot]) -> None:
        wanted: dict[tuple[str, int | str], list[Spot]] = defaultdict(list)
        for spot in spots:
            own = _UNIQUE.search(spot.raw)
            for key in (*([own[1].decode("utf-8", "replace")] if own else []), *spot.pointers.hashes):
                wanted[spot.topic, key].append(spot)
        topics = {spot.topic for spot in spots}
        alike = set()  # spots whose topic has other messages with their UNIQ_KEY, as a batch has
        for message, unique in _with_unique(self._log) if spots else ():
            keys: list[tuple[str, int | str]] = [(topic, unique) for topic in topics]
            keys += key_hashes(topics, unique).items()
            found = {spot.place: spot for key in keys for spot in wanted.get(key, ())}
            for place, spot in found.items():
                if message.topic == spot.topic != TRANS_HALF_TOPIC:
                    alike.add(place)
                elif len(self._copies[place]) < COPIES_MAX:
                    self._copies[place].append(message._replace(body=memoryview(bytes(message.body))))
        for place in alike:
            self._copies.pop(place, None)

    def _find_examples(self, wanted: set[frozenset[str]]) -> None:
        topics = frozenset[str]().union(*wanted)
        known: dict[str, dict[tuple[str, int, int], Message]] = {topic: {} for topic in topics}
        for message, unique in _with_unique(self._log):
            if message.topic not in topics:
                continue
            key = unique, message.body_crc, len(message.body)
            slim = message._replace(body=memoryview(b""))
            for topic in topics:
                other = known[topic].get(key)
                if other is not None and frozenset((topic, message.topic)) in wanted:
                    for pair in (Pair(other, slim), Pair(slim, other)):
                        examples = self._examples[_way(*pair)]
                        if len(examples) < EXAMPLES_MAX:
                            examples.append(pair)
            if len(known[message.topic]) < KNOWN_MAX:
                known[message.topic][key] = slim

    def of(self, spot: Spot, fits: Callable[[bytes], bool]) -> list[Built]:
        """Return the records that the copies of a damaged record say.

        Only those with the fewest inexact fields. `fits` says whether nothing refutes a record.
        """
        found: dict[bytes, Built] = {}
        for copy in self._copies.get(spot.place, ()):
            way = (copy.topic, spot.topic, copy.physical_offset < spot.place, _reserved(copy))
            pairs = self._examples.get(way, [])
            if len(pairs) >= EXAMPLES_MIN:
                options = _Making(spot, copy, pairs).options()
                one = next((one for one in options if _is_hit(spot.raw, one.content) and fits(one.content)), None)
                if one is not None:
                    found.setdefault(one.content, one)
        least = min((len(one.near) for one in found.values()), default=0)
        return [one for one in found.values() if len(one.near) == least]


class _Making:
    """Makes a record from its copy, as the examples `pairs` show."""

    def __init__(self, spot: Spot, copy: Message, pairs: Sequence[Pair]) -> None:
        self._spot, self._copy, self._pairs = spot, copy, pairs
        head = HEADS[copy.sys_flag & max(HEADS)]
        names = [field.name for field in head.fields]
        values = head.struct.unpack_from(spot.raw) if len(spot.raw) >= head.size else ()
        self._here = dict(zip(names, values, strict=False))  # the fields as they are
        self._room = head.size + len(copy.body) + 2

    def options(self) -> Iterator[Built]:
        """Yield the record with each store time that it may have, its own first."""
        spot, first = self._spot, self._pairs[0].other
        place = spot.pointers.units[0][1].queue_offset
        topic = encode.topic_field(spot.topic, long_topics=True)
        if topic is None or not self._here:
            return
        has_crc = CRC32 in first.properties
        message = encode.MessageExtBrokerInner(
            spot.topic,
            bytes(self._copy.body),
            {},
            host.decode(self._born_host()),
            self._copy.store_host,
            self._field("born_timestamp", "BORNTIMESTAMP"),
            spot.queue_id,
            self._field("flag", "FLAG"),
            self._field("sys_flag", "SYSFLAG"),
            self._field("reconsume_times", "RECONSUMETIMES"),
            self._prepared_offset(),
        )
        for stamp, own in self._store_times():
            values, near = self._properties(stamp, self._room + len(topic.raw))
            raw = encode.properties_to_bytes(
                values, end_with_separator=first.properties_bytes.endswith(b"\x02"), property_crc=has_crc
            )
            made = encode.encode(message, raw, topic, property_crc=has_crc)
            if made.size == spot.pointers.size:
                near = near if own else ["STORETIMESTAMP", *near]
                yield Built(made.placed(place, spot.place, stamp), self._copy.physical_offset, tuple(near))

    def _field(self, name: str, stored: str) -> int:
        steps = {getattr(pair.other, name) - getattr(pair.copy, name) for pair in self._pairs}
        others = {getattr(pair.other, name) for pair in self._pairs}
        if len(steps) == 1:
            return int(getattr(self._copy, name) + steps.pop())
        return int(others.pop() if len(others) == 1 else self._here[stored])

    def _prepared_offset(self) -> int:
        if all(pair.other.prepared_transaction_offset == pair.copy.physical_offset for pair in self._pairs):
            return self._copy.physical_offset
        return self._field("prepared_transaction_offset", "PREPAREDTRANSACTIONOFFSET")

    def _born_host(self) -> bytes:
        if all(pair.other.born_host_bytes == pair.copy.born_host_bytes for pair in self._pairs):
            return self._copy.born_host_bytes
        others = {pair.other.born_host_bytes for pair in self._pairs}
        return others.pop() if len(others) == 1 else self._here["BORNHOST"]

    def _store_times(self) -> Iterator[tuple[int, bool]]:
        yield self._here["STORETIMESTAMP"], True
        before = self._spot.beside[0]
        if before is not None:
            code = self._spot.pointers.units[0][1].tags_code  # of a delayed message: store time and whole seconds
            yield before.store_timestamp + (code - before.store_timestamp) % SECOND, False
            yield before.store_timestamp, False
            for begin, diff in self._spot.pointers.times:
                yield max(before.store_timestamp, begin + diff * SECOND), False

    def _properties(self, stamp: int, at: int) -> tuple[dict[str, str], list[str]]:
        # and the names of those that are not exact
        copied, example = self._copy.properties, self._pairs[0].other.properties
        names = [name for name in example if name in RESERVED_NAMES or name in copied]
        names += [name for name in copied if name not in RESERVED_NAMES and name not in example]
        found: dict[str, str] = {}
        near = []
        for name in names if CRC32 not in example else names[:-1]:
            value = self._property(name, copied)
            at += len(name) + 1
            if value is None:
                size = len(example[name])
                value = self._spot.raw[at : at + size].decode("latin-1")
                if not value.isdecimal():
                    near.append(name)
                    value = self._time(name, stamp)
            found[name] = value
            at += len(value.encode(errors="replace")) + 1
        return found, near

    def _property(self, name: str, copied: dict[str, str]) -> str | None:
        if name not in RESERVED_NAMES:
            return copied[name]
        pairs = [(copy.properties.get(name), other.properties.get(name)) for copy, other in self._pairs]
        if name in copied and all(one == other for one, other in pairs):
            return copied[name]
        here = _known(self._copy, self._spot.topic, self._spot.queue_id)
        known = [_known(pair.copy, pair.other.topic, pair.other.queue_id) for pair in self._pairs]
        for number, value in enumerate(here):
            if all(one[number] == other for one, (_, other) in zip(known, pairs, strict=True)):
                return value
        others = {other for _, other in pairs}
        is_time = any(other and len(other) == TIME_DIGITS and other.isdecimal() for other in others)
        return pairs[0][1] if len(others) == 1 and not is_time else None

    def _time(self, name: str, stamp: int) -> str:
        # as in the example, what is nearer: the copy's store time, or the record's own
        copy, other = self._pairs[0]
        shown = other.properties[name]
        value = int(shown) if shown.isdecimal() else 0
        is_own = abs(other.store_timestamp - value) < abs(copy.store_timestamp - value)
        near = stamp if is_own else self._copy.store_timestamp
        return str(near if value % SECOND else near // SECOND * SECOND)


def _known(copy: Message, topic: str, queue_id: int) -> tuple[str, ...]:
    # what a property of a record may say that others do not have
    return copy.topic, str(copy.queue_id), copy.msg_id, topic, str(queue_id)


def _with_unique(log: CommitLog) -> Iterator[tuple[Message, str]]:
    for item in log.scan():
        unique = _UNIQUE.search(item.properties_bytes) if isinstance(item, Message) else None
        if unique is not None and isinstance(item, Message):
            yield item, unique[1].decode("utf-8", "replace")


def _way(copy: Message, other: Message) -> tuple[str, str, bool, frozenset[str]]:
    return copy.topic, other.topic, copy.physical_offset < other.physical_offset, _reserved(copy)


def _reserved(message: Message) -> frozenset[str]:
    return RESERVED_NAMES.intersection(message.properties)


def _is_hit(raw: bytes, content: bytes) -> bool:
    # whether one damaged part explains the bytes: in it, hardly any has the right value
    if len(raw) != len(content):
        return False
    here, right = np.frombuffer(raw, np.uint8), np.frombuffer(content, np.uint8)
    wrong = np.flatnonzero(here != right)
    part = slice(wrong[0], wrong[-1] + 1) if len(wrong) else slice(0)
    values = right[part] != 0
    return bool(np.count_nonzero(values & (here[part] == right[part])) * CHANCE <= np.count_nonzero(values))
