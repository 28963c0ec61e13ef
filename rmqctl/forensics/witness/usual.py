"""What the records of a store have in common: the witnesses inside the log.

Each witness is calibrated: it counts only if nearly all records of the store satisfy it, so that a store whose clients
do unusual things is not judged by it. A value is *in use* if at least `IN_USE` records have it.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.body.client_check import has_bad_compression, has_bad_port
from rmqctl.format.message import PLACEHOLDER_SIGN, Damage, Message, ends_in_reserve
from rmqctl.format.sys_flag import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    INNER_BATCH,
    NEED_UNWRAP,
    TransactionType,
    transaction_type,
)
from rmqctl.store.config.topics import DEFERRED_TOPICS, GROUP_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from rmqctl.store.read.file_scan import ScanItem

IN_USE = 8  # records
# a witness counts if at most so many records do not satisfy it, or one in so many
EXCEPTIONS_MAX, EXCEPTIONS_SHARE = 3, 1000
DISTINCT_MAX = 100_000  # values of one kind that are counted, so that memory stays bounded
TEXT_BODIES = 64  # bodies of a topic that are examined
SPIKE_MS = 1000  # a record's store time is wrong if it is farther than this outside those of both neighbours
# BORNTIMESTAMP is wrong if it is farther than this outside what other records have, and than so many times their range:
# a client's wrong clock comes so near to one flipped bit once in 65,536 times
BORN_SPAN_MS = 2**24
DELAY_FACTOR = 2**16
RECONSUME_TIMES_MAX = 4095  # by default, a message is sent again 16 times
UNIQUE_BIN_MS = 2048
LATE_BINS = 2**27 // UNIQUE_BIN_MS  # a message may be sent again long after it got its UNIQ_KEY, but not before
KNOWN_SYS_FLAGS = 0x7FF
# the broker or the client library sets them, and no application
RESERVED_NAMES = frozenset({
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "BUYER_ID",
    "ORIGIN_MESSAGE_ID", "CORRELATION_ID", "UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "MIN_OFFSET", "MAX_OFFSET",
    "TRANSACTION_CHECK_TIMES", "__CRC32#", "INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELAY_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "1ST_POP_TIME",
    "POP_CK", "ORIGIN_GROUP", "__transactionId__", "CONSUME_START_TIME",
})  # fmt: skip
TIMER_TIMES = ("TIMER_OUT_MS", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS")  # ms
CONSTANT_NAMES = frozenset({"WAIT", "TRAN_MSG", "CLUSTER", "MSG_REGION", "TRACE_ON"})  # with few values in a store
TOPIC_NAMES = frozenset({"REAL_TOPIC", "RETRY_TOPIC"})
NAMES_OF_KINDS = {
    "topic": "topics",
    "name": "propertyNames",
    "constant": "propertyValues",
    "unique": "UNIQ_KEY's time",
    "address": "UNIQ_KEY's client",
    "tags": "TAGS",
}
TIMER_PRECISION_MS = 100  # the least of timerPrecisionMs, the greatest is 1000: TIMER_OUT_MS is rounded down to it
Value = tuple[str, ...]  # a kind, what the value is of, and the value
_CONTROL = re.compile("[\x00\x03-\x08\x0b\x0c\x0e-\x1f\x7f]")
_UNIQUE_KEY = re.compile(r"(?:[0-9A-F]{20}|[0-9A-F]{44})[0-9A-F]{12}")
_TIME = slice(-12, -4)  # of a UNIQ_KEY: ms since the month began
_PREFIX = slice(None, -12)  # address, process and class loader of the client


class Beside(NamedTuple):
    """The fields of a neighbour that a record is compared with."""

    physical_offset: int
    store_timestamp: int  # ms
    store_host: bytes


def _is_text(message: Message) -> bool:
    try:
        text = message.properties_bytes.decode()
        return not _CONTROL.search(text) and not _CONTROL.search(message.topic_bytes.decode())
    except UnicodeDecodeError:
        return False


def _are_pairs(message: Message) -> bool:
    pairs = message.properties_bytes.removesuffix(b"\x02").split(b"\x02") if message.properties_bytes else []
    return all(pair.count(b"\x01") == 1 and 0 < pair.index(b"\x01") < len(pair) - 1 for pair in pairs)


def _is_sys_flag_known(message: Message) -> bool:
    if message.sys_flag == 0:
        return True
    flags, found = message.sys_flag, message.properties
    allowed = KNOWN_SYS_FLAGS
    allowed &= -1 if flags & COMPRESSED else ~COMPRESSION_TYPE_MASK
    allowed &= -1 if properties.INNER_NUM in found else ~(NEED_UNWRAP | INNER_BATCH)
    is_bare = transaction_type(flags) is not TransactionType.NONE and "TRAN_MSG" not in found
    return not flags & ~allowed and not is_bare and not has_bad_compression(message)


def _is_prepared_offset_right(message: Message) -> bool:
    has_one = transaction_type(message.sys_flag) in (TransactionType.COMMIT, TransactionType.ROLLBACK)
    return has_one or message.prepared_transaction_offset in (0, PLACEHOLDER_SIGN)


def _is_never_resent(message: Message) -> bool:
    if message.reconsume_times == 0 or message.topic in DEFERRED_TOPICS or message.topic.startswith(GROUP_PREFIXES):
        return True
    return "RETRY_TOPIC" in message.properties


def _are_timer_times_right(message: Message) -> bool:
    if b"TIMER_" not in message.properties_bytes:
        return True
    found = message.properties
    numbers = {name: found[name] for name in TIMER_TIMES if name in found}
    if not all(value.isdecimal() for value in numbers.values()):
        return False
    out, deliver = int(numbers.get("TIMER_OUT_MS", 0)), int(numbers.get("TIMER_DELIVER_MS", 0))
    rounded = (out, int(numbers.get("TIMER_ENQUEUE_MS", 0)))
    return not any(time % TIMER_PRECISION_MS for time in rounded) and not (
        out and deliver and not 0 <= deliver - out <= SPIKE_MS
    )


# by name: whether a record satisfies the witness
RULES: dict[str, Callable[[Message], bool]] = {
    "text": _is_text,
    "pairs": _are_pairs,
    "ports": lambda message: not has_bad_port(message),
    "sysFlag": _is_sys_flag_known,
    "preparedTransactionOffset": _is_prepared_offset_right,
    "reconsumeTimes": lambda message: 0 <= message.reconsume_times <= RECONSUME_TIMES_MAX,
    "reconsumeTimes of the topic": _is_never_resent,
    "timer times": _are_timer_times_right,
}


def beginning(message: Message) -> tuple[str, int] | None:
    """Return the client of a message by its UNIQ_KEY, and when its month began.

    That is in ms, by its own clock. None without a UNIQ_KEY of a client library. The client creates the UNIQ_KEY when
    it sends, and writes the time since its month began into it.
    """
    unique = message.properties.get(properties.UNIQ_KEY, "")
    if not _UNIQUE_KEY.fullmatch(unique):
        return None
    return unique[_PREFIX], message.born_timestamp - int(unique[_TIME], 16)


def is_one_bit_off(one: bytes, other: bytes) -> bool:
    """Return whether two values differ in exactly one bit."""
    size = len(one)
    return size == len(other) and (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count() == 1


class Usual:
    """The values of all records of a log, and the records that differ.

    `suspects` are physical offsets of records that are known to be wrong; the witnesses add those that they refute.
    `beside` has the neighbours of each. `topics` are those that the store has.
    """

    def __init__(self, suspects: Collection[int] = (), topics: Collection[str] = ()) -> None:
        self.suspects = set(suspects)
        self._topics = frozenset(topics)
        self.beside: dict[int, tuple[Beside | None, Beside | None]] = {}
        self._messages = 0
        self._disordered = 0  # records whose store time is before that of the record before
        self._broken: dict[str, list[int]] = {name: [] for name in RULES}
        self._seen: Counter[Value] = Counter()
        self._first: dict[Value, int] = {}  # physical offset of the first record with a value
        self._delays: dict[int, list[int]] = {}  # by size of STORETIMESTAMP - BORNTIMESTAMP: count, least, greatest
        self._text_bodies: dict[str, list[int]] = {}  # by topic: how many examined bodies are text, and how many not

    def read(self, items: Iterable[ScanItem]) -> Iterator[Damage]:
        """Take all records of a scan; yield its damages."""
        previous: Beside | None = None
        current: Beside | None = None
        waiting: dict[int, Beside | None] = {}  # suspects behind the last good record
        for item in items:
            if isinstance(item, Damage):
                waiting[item.physical_offset] = current
                yield item
            elif isinstance(item, Message):
                self._take(item)
                if item.physical_offset in self.suspects or not self._satisfies_rules(item):
                    waiting[item.physical_offset] = current
                    continue
                now = Beside(item.physical_offset, item.store_timestamp, item.store_host_bytes)
                self.beside |= {at: (before, now) for at, before in waiting.items()}
                waiting.clear()
                self._disordered += current is not None and now.store_timestamp < current.store_timestamp
                if current and previous and _is_beside_itself(previous, current, now):
                    self.beside[current.physical_offset] = previous, now
                    self.suspects.add(current.physical_offset)
                else:
                    previous = current
                current = now
        self.beside |= {at: (before, None) for at, before in waiting.items()}
        self._add_outliers()

    def _satisfies_rules(self, message: Message) -> bool:
        broken = [name for name, holds in RULES.items() if not holds(message)]
        if ends_in_reserve(message.properties_bytes):
            broken = [name for name in broken if name not in ("text", "pairs")]
        for name in broken:
            self._broken[name].append(message.physical_offset)
        return not broken

    def _take(self, message: Message) -> None:
        self._messages += 1
        for value in _values(message):
            if value in self._seen or len(self._seen) < DISTINCT_MAX:
                self._seen[value] += 1
                self._first.setdefault(value, message.physical_offset)
        delay = message.store_timestamp - message.born_timestamp
        found = self._delays.setdefault(delay.bit_length() * (1 if delay >= 0 else -1), [0, delay, delay])
        found[:] = found[0] + 1, min(found[1], delay), max(found[2], delay)
        texts = self._text_bodies.setdefault(message.topic, [0, 0])
        if message.body and sum(texts) < TEXT_BODIES:
            texts[not is_text(message.body)] += 1

    def _add_outliers(self) -> None:
        for name in self.counted_rules:
            self.suspects |= set(self._broken[name])
        for value, at in self._first.items():
            if self._seen[value] == 1 and self._is_refuted(value):
                self.suspects.add(at)

    @cached_property
    def counted_rules(self) -> tuple[str, ...]:
        """The names of the rules that count."""
        return tuple(
            name
            for name, broken in self._broken.items()
            if self._messages >= IN_USE and _are_exceptions(len(broken), self._messages)
        )

    def is_in_use(self, value: Value) -> bool:
        """Return whether several records have this value."""
        return self._seen[value] >= IN_USE

    @cached_property
    def _in_use(self) -> dict[tuple[str, ...], list[str]]:
        """The values in use, by what they are of, where few records have another value."""
        found: dict[tuple[str, ...], list[str]] = {}
        others, all_of = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for value, count in self._seen.items():
            all_of[value[:-1]] += count
            if count >= IN_USE:
                found.setdefault(value[:-1], []).append(value[-1])
            elif value[0] not in ("name", "topic"):  # few messages may have a name or a topic; rules name those known
                others[value[:-1]] += count
        return {of: values for of, values in found.items() if _are_exceptions(others[of], all_of[of])}

    def _is_refuted(self, value: Value) -> bool:
        """Return whether a value is wrong: the others have another one in its place."""
        is_known = self._seen[value] > 1 or value[0] == "tags"
        used = [] if is_known else self._in_use.get(value[:-1], [])
        if value[0] == "unique":
            here = int(value[-1])
            others = [here - int(one) for one in used]
            return bool(others) and all(bins < -1 or bins > LATE_BINS for bins in others)
        if value[0] == "address":
            return bool(used)
        if value[0] == "topic" and (not self._topics or value[-1] in self._topics):
            return False
        if value[0] == "name" and value[-1] in RESERVED_NAMES:
            return False
        return any(
            is_one_bit_off(value[-1].encode(), one.encode())
            and (value[0] != "topic" or not _is_sibling(value[-1], one))
            for one in used
            if value[0] != "name" or one in RESERVED_NAMES
        )

    def violated(self, message: Message) -> Iterator[str]:
        """Yield the names of the witnesses that refute a record."""
        reserve = ends_in_reserve(message.properties_bytes)
        for name in self.counted_rules:
            if not (reserve and name in ("text", "pairs")) and not RULES[name](message):
                yield name
        before, behind = self.beside.get(message.physical_offset, (None, None))
        if before and behind and before.store_host == behind.store_host != message.store_host_bytes:
            yield "storeHost"
        slack = SPIKE_MS if self._disordered else 0
        if before and behind and before.store_timestamp <= behind.store_timestamp:
            least, most = before.store_timestamp - slack, behind.store_timestamp + slack
            if not least <= message.store_timestamp <= most:
                yield "storeTime"
        if self._is_delay_wrong(message.store_timestamp - message.born_timestamp):
            yield "bornTime"
        yield from dict.fromkeys(NAMES_OF_KINDS[value[0]] for value in _values(message) if self._is_refuted(value))

    def _is_delay_wrong(self, delay: int) -> bool:
        used = [(low, high) for count, low, high in self._delays.values() if count >= IN_USE]
        if not used:
            return False
        low, high = min(low for low, _ in used), max(high for _, high in used)
        span = max(BORN_SPAN_MS, DELAY_FACTOR * (high - low))
        return not low - span <= delay <= high + span

    def are_tags_in_use(self, message: Message, least: int = IN_USE) -> bool:
        """Return whether at least so many records of the topic have the TAGS of this one."""
        return self._seen["tags", message.topic, message.properties.get(properties.TAGS, "")] >= least

    def unknown(self, message: Message) -> int:
        """Return how many names and constant values of a record few other records have."""
        values = [value for value in _values(message) if value[0] in ("name", "constant", "topic")]
        return sum(not self.is_in_use(value) and value[-1] not in RESERVED_NAMES | self._topics for value in values)

    def has_text_bodies(self, topic: str) -> bool:
        """Return whether all examined bodies of a topic are text."""
        texts, others = self._text_bodies.get(topic, (0, 0))
        return texts >= IN_USE and not others


def _are_exceptions(count: int, of: int) -> bool:
    """Return whether so few of `of` records do not satisfy a witness that it counts."""
    return count <= max(of // EXCEPTIONS_SHARE, EXCEPTIONS_MAX)


def is_text(body: bytes | memoryview) -> bool:
    """Return whether a body is text in UTF-8, without control characters."""
    try:
        return not _CONTROL.search(str(body, "utf-8"))
    except UnicodeDecodeError:
        return False


def _is_sibling(one: str, other: str) -> bool:
    """Return whether topics one bit off are of one family, as orders-1 and -3."""
    at = next(i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return at == len(one) - 1 or (one[at] + other[at]).isdigit()


def _is_beside_itself(before: Beside, record: Beside, behind: Beside) -> bool:
    if before.store_host == behind.store_host != record.store_host:
        return True
    low, high = before.store_timestamp, behind.store_timestamp
    return low <= high and not low - SPIKE_MS <= record.store_timestamp <= high + SPIKE_MS


def _values(message: Message) -> Iterator[Value]:
    """Yield the values of a record that are compared with those of others."""
    found = message.properties
    for name, value in found.items():
        yield "name", name
        if name in CONSTANT_NAMES:
            yield "constant", name, value
        elif name in TOPIC_NAMES:
            yield "topic", name, value
    yield "tags", message.topic, found.get(properties.TAGS, "")
    client = beginning(message)
    if client is not None:
        yield "unique", client[0], str(client[1] // UNIQUE_BIN_MS)
        yield "address", client[0], message.born_host.address.hex()
