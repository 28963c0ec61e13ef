"""Replace values of messages by keyed hashes of the same length.

A redacted value becomes letters and digits that depend on the value and on a random key, which nobody keeps: within one
extract, equal values stay equal, and no table of hashes gives a value back. A value of a few characters can still be
guessed from how often it occurs. All digits stay digits, and hexadecimal text stays hexadecimal.

- `body`: the whole body, as JSON if it was JSON.
- `json:PATH`: the texts and numbers at PATH in a JSON body, and all below it. PATH is names with points between them;
  `*` is any name, and each element of a list counts. A body that is not JSON is redacted whole. `true`, `false` and
  `null` stay.
- `properties`: all values but those that brokers and clients act on (`KEPT`). KEYS is redacted word by word, so that
  the index finds a message by the hash of its key.

Compressed bodies are decompressed, and stay so. The bodies of op messages and of POP's revive topics stay: brokers read
them, and they have offsets and names, but nothing from a producer.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from json import JSONDecoder
from typing import TYPE_CHECKING

from rmqctl.format import properties
from rmqctl.format.body import bounded_json
from rmqctl.format.body.compression import BodyError, decompressed
from rmqctl.format.body.inner_batch import inner_messages
from rmqctl.format.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK, INNER_BATCH
from rmqctl.store.config.topics import REVIVE_PREFIX, TRANS_OP_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.message import Message

KEPT = properties.READ_BY_BROKERS.union(
    b"WAIT MIN_OFFSET MAX_OFFSET TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON "
    b"MAX_RECONSUME_TIMES CONSUME_START_TIME DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID TTL ARRIVE_TIME "
    b"PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK_OFFSET BORN_TIMESTAMP RMQCTL_DAMAGED __CRC32#".split()
)
JSON_SIGNS_MAX = 4_000_000
_ALPHABETS = [  # the characters of a hash, one for each byte: of the first kind that the value is of
    (re.compile(kind), bytes(letters[at % len(letters)] for at in range(256)))
    for kind, letters in (
        (rb"[0-9]*", b"0123456789"),
        (rb"[0-9A-F]+", b"0123456789ABCDEF"),
        (rb"[0-9a-f]+", b"0123456789abcdef"),
        (rb"(?s:.+)", b"abcdefghijklmnopqrstuvwxyz234567"),
    )
]
_WRAPPED = {"{": ('{"', '":0}'), "[": ('["', '"]'), '"': ('"', '"')}
_NUMBER = re.compile(r"-?(\d+)(?:\.(\d+))?")
_BLANKS = re.compile(r"[ \t\r\n]*")
_PAIR_END, _NAME_END = properties.PROPERTY_SEPARATOR.encode(), properties.NAME_VALUE_SEPARATOR.encode()


class Redaction:
    """Redacts messages by a random `key`; `what` has body, properties and json:PATH.

    `notes` counts the bodies that were redacted whole because they could not be read, by the reason; `values` counts
    the redacted values, by the word of `what`. Raises ValueError if a word of `what` is none of these.
    """

    def __init__(self, what: Sequence[str], key: bytes) -> None:
        self._key = key
        self._paths = {word: word.removeprefix("json:").split(".") for word in what if word.startswith("json:")}
        self._properties = "properties" in what
        self._whole = "body" in what
        self.notes: Counter[str] = Counter()
        self.values: Counter[str] = Counter(dict.fromkeys(what, 0))
        self._sought: set[str] = set()  # of `what`, the paths that a JSON body was asked for
        self._found: set[str] = set()  # those that led to something
        for word in what:
            if word not in ("body", "properties") and not re.fullmatch(r"json:[^.]+(\.[^.]+)*", word):
                raise ValueError(f"{word!r} is none of body, properties and json:PATH (as in json:customer.email)")

    @property
    def in_no_body(self) -> list[str]:
        """The words of `what` whose path no JSON body has, if there was one."""
        return sorted(self._sought - self._found)

    def start_anew(self) -> None:
        """Forget what was counted."""
        self.notes.clear()
        self.values = Counter(dict.fromkeys(self.values, 0))

    def of(self, message: Message) -> Message:
        """Return the message with redacted body and properties, but its old checksum."""
        sys_flag, body, is_batch = message.sys_flag, message.body, message.sys_flag & INNER_BATCH
        is_for_brokers = message.topic == TRANS_OP_HALF_TOPIC or message.topic.startswith(REVIVE_PREFIX)
        if len(body) and not is_for_brokers and (self._whole or self._paths or (self._properties and is_batch)):
            try:
                plain = decompressed(sys_flag, body)
            except BodyError:
                self.notes["could not be decompressed"] += 1
                body = memoryview(self.hashed(bytes(body)))
            else:
                body = memoryview(self._inner_batch(plain) if is_batch else self._body(plain))
            sys_flag &= ~(COMPRESSED | COMPRESSION_TYPE_MASK)
        raw = self._pairs(message.properties_bytes) if self._properties else message.properties_bytes
        return message._replace(sys_flag=sys_flag, body=body, properties_bytes=raw)

    def hashed(self, value: bytes) -> bytes:
        """Return the hash of a value, as long as the value."""
        letters = next(letters for kind, letters in _ALPHABETS if kind.fullmatch(value))
        seed = hmac.digest(self._key, value, "sha256")
        made = value
        for attempt in range(256):  # a short value could become itself
            if made != value or not value:
                break
            blocks = range(-(-len(value) // len(seed)))
            stream = (hmac.digest(seed, b"%d %d" % (attempt, block), "sha256") for block in blocks)
            made = b"".join(stream)[: len(value)].translate(letters)
        return made

    def _body(self, plain: bytes) -> bytes:
        text = plain.decode("latin-1")  # a byte is a character: JSON's signs are ASCII
        try:
            bounded_json.loads(text, JSON_SIGNS_MAX)
        except ValueError:
            if self._whole:
                self.values["body"] += 1
            else:
                self.notes["not JSON"] += 1
            return self.hashed(plain)
        if self._whole:
            self.values["body"] += 1
            begin, end = _WRAPPED.get(text.lstrip()[:1], ("", ""))
            room = len(plain) - len(begin) - len(end)
            if begin and room > 0:
                return begin.encode() + self.hashed(plain)[:room] + end.encode()
            return self._at(text, [])[0].encode("latin-1")
        for word, path in self._paths.items():
            text, found, changed = self._at(text, path)
            self._sought.add(word)
            self._found |= {word} if found else set()
            self.values[word] += changed
        return text.encode("latin-1")

    def _at(self, text: str, path: list[str]) -> tuple[str, int, int]:
        """Return the redacted text, the number of values at `path`, and of changed ones."""
        pieces, done, found, changed = [], 0, 0, 0
        for start, end in _spans(text, _skip(text, 0), path):
            leaf = self._leaf(text[start:end])
            found, changed = found + 1, changed + (leaf != text[start:end])
            pieces += [text[done:start], leaf]
            done = end
        return "".join([*pieces, text[done:]]), found, changed

    def _leaf(self, text: str) -> str:
        if text.startswith('"'):
            return f'"{self.hashed(text[1:-1].encode("latin-1")).decode()}"'
        number = _NUMBER.match(text)
        if number is None:
            return text  # true, false, null
        made = list(text)
        digits = self.hashed("".join(filter(str.isdigit, number[0])).encode()).decode()
        for at, digit in zip((at for at in range(number.end()) if text[at].isdigit()), digits, strict=True):
            made[at] = digit
        if len(number[1]) > 1:
            made[number.start(1)] = "1"  # JSON has no leading zeros; and the number fits into the same type
        return "".join(made)

    def _pairs(self, raw: bytes) -> bytes:
        return _PAIR_END.join(map(self._pair, raw.split(_PAIR_END)))

    def _pair(self, pair: bytes) -> bytes:
        name, separator, value = pair.partition(_NAME_END)
        if not value or name in KEPT:
            return pair
        blank = properties.KEY_SEPARATOR.encode()
        words = value.split(blank) if name == properties.KEYS.encode() else [value]
        self.values["properties"] += 1
        return name + separator + blank.join(map(self.hashed, words))

    def _inner_batch(self, body: bytes) -> bytes:
        try:
            found = list(inner_messages(body))
        except ValueError:
            self.notes["not the batch that SYSFLAG says"] += 1
            return self.hashed(body)
        of_body, of_pairs = self._whole or self._paths, self._properties
        return b"".join(
            one._replace(
                body=self._body(one.body) if one.body and of_body else one.body,
                properties=self._pairs(one.properties) if of_pairs else one.properties,
            ).encoded()
            for one in found
        )


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _spans(text: str, at: int, path: list[str]) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each text, number and word at `path` in valid JSON.

    The value that `path` is in begins at `at`. With an empty path, all of it counts.
    """
    if text[at] not in "{[":
        if not path:
            yield at, _end(text, at)
        return
    is_object, at = text[at] == "{", _skip(text, at + 1)
    while text[at] not in "}]":
        inner = path
        if is_object:
            key, at = JSONDecoder().raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # the colon
            is_on_path = not path or path[0] in ("*", key.encode("latin-1", "replace").decode("utf-8", "replace"))
            inner = path[1:] if is_on_path else ["\0"]
        if inner != ["\0"]:
            yield from _spans(text, at, inner)
        at = _skip(text, _end(text, at))
        at = _skip(text, at + 1) if text[at] == "," else at


def _end(text: str, at: int) -> int:
    return JSONDecoder().raw_decode(text, at)[1]
