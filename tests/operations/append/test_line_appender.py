"""append --from: what the kernel takes is stored byte for byte as by the one-line way, and told with the same words."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.cli.main import run
from rmqctl.format.crc import masked_crc32
from rmqctl.format.profile import PROFILES
from rmqctl.operations.append import line_appender
from rmqctl.operations.append.appender import Appender, QueueGrowth, Refused
from rmqctl.operations.append.line_appender import LineAppender
from rmqctl.operations.append.line_encoder import LineEncoder, encoder_of
from rmqctl.operations.append.message_from_json import UNIQUE_KEYS
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine import described_log, message_store
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.write.commit_log_writer import PutSettings
from rmqctl.store.write.put_message import AppendMessageResult, PutEncodedResult, PutMessageResult, PutMessageStatus
from tests.conftest import READABLE_NAMES, tree_hash, unpack
from tests.support.property_settings import PROPERTY

NOW = 1_795_252_516_848
SMALL = Geometry(4096, 200, 10, 40)
TOPICS = ("T", "OrderPaid", "x%y|z-_0", "a" * 127)
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(3)]
Told = tuple[str, list[tuple[tuple[int, ...], str]], int, dict[tuple[str, int], QueueGrowth]]


@pytest.fixture(autouse=True)
def _clock_and_single_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock stands, and one line goes by itself where the kernel stops: the next is the kernel's again.

    Dispatch keeps small described parts of the log, too, and reads what lies between them.
    """
    with monkeypatch.context() as patch:
        patch.setattr(message_store, "now_ms", lambda: NOW)
        patch.setattr(line_appender, "PUT_AT_ONCE", 1)
        patch.setattr(described_log, "PART_SIZE_MIN", 300)
        yield


class Store:
    """A new store that lines go into."""

    def __init__(
        self, root: Path, *, by_kernel: bool, settings: PutSettings | None = None, geometry: Geometry = SMALL
    ) -> None:
        UNIQUE_KEYS.counter = 0xFFFFFFF0
        self.root = root
        self.store = MessageStore.create(root, settings or PutSettings(), geometry)
        self.refused: list[tuple[tuple[int, ...], str]] = []
        self.encoder = encoder_of(self.store) if by_kernel else None
        if self.encoder is not None:
            for key in QUEUES:
                self.encoder.add_queue(key)
        self.appender = Appender(self.store, lambda _: None, self._refuse)
        self.lines = LineAppender(self.appender, lambda: NOW, self.encoder)

    def _refuse(self, refused: Refused) -> None:
        self.refused.append(refused)

    def close(self) -> Told:
        """What is in the store, and what was said."""
        self.appender.finish()
        self.store.close()
        return tree_hash(self.root), sorted(self.refused), self.appender.stored, self.appender.queues


def one_by_one(root: Path, lines: list[bytes], **of_store: Any) -> Told:
    store = Store(root, by_kernel=False, **of_store)
    for line in lines:
        store.lines.put(line)
    return store.close()


def in_blocks(root: Path, lines: list[bytes], size: int, **of_store: Any) -> Told:
    """Blocks of `size` lines."""
    store = Store(root, by_kernel=True, **of_store)
    for start in range(0, len(lines), size):
        store.lines.put(b"".join(lines[start : start + size]))
    return store.close()


def taken(line: bytes) -> bool:
    """Whether the kernel takes a line."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "s", by_kernel=True)
        encoder = store.encoder
        assert encoder is not None
        found = len(encoder.encode(_array(line), 0).rows)
        store.store.close()
    return found == 1


def _array(line: bytes) -> Any:
    return np.frombuffer(bytearray(line), np.uint8)


# --- lines, plain and not

PLAIN_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7F, exclude_characters='"\\'), max_size=40)
RAW_TEXT = st.one_of(
    PLAIN_TEXT,
    st.text(max_size=12).map(lambda text: json.dumps(text)[1:-1]),
    st.text(st.characters(codec="utf-8", exclude_characters='"\\'), max_size=12),
    st.sampled_from(("\\ud800", "\\u0001", "\\n", "\\q", "\x01", "\x1f", "\t", "é", "\x7f")),
)
INTEGER = st.one_of(
    st.integers(0, 2),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(
        (0, -1, 2**31 - 1, 2**31, -(2**31) - 1, 10**17, 10**18 - 1, 10**18, 2**63 - 1, 2**63, -(2**63), 10**40)
    ),
).map(str)
NUMBER = st.one_of(INTEGER, st.sampled_from(("-0", "01", "1.0", "1.5", "1e2", "+1", "-", "1_0", "0x1", "NaN", "--1")))
OTHER = st.sampled_from(("null", "true", "[]", "{}", '{"a":"b"}', '"7"', '["x"]', "nul", ""))
NAME = st.one_of(
    st.sampled_from(
        ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "REAL_TOPIC", "INNER_NUM", "INNER_MULTI_DISPATCH", "__CRC32#", "a", "")
    ),
    RAW_TEXT,
)
BASE64 = st.one_of(
    st.binary(max_size=30).map(lambda body: base64.b64encode(body).decode()),
    st.text("AQg=/+-x ", max_size=9),
)
HOST = st.one_of(
    st.sampled_from(
        (
            "10.1.2.3:30001",
            "255.255.255.255:2147483647",
            "0.0.0.0:0",
            "[2001:db8::1]:9",
            "[10.1.2.3]:9",
            "1.2.3.4:+5",
            "1.2.3.4:05",
        )
    ),
    st.text("0123456789.:-", max_size=14),
)


BLANKS = st.sampled_from(("", "", "", "", " ", "  ", "\t", "\r"))


@st.composite
def pairs(draw: st.DrawFn, names: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> str:
    found = draw(st.lists(st.tuples(names, values), max_size=4))
    items = [f'{draw(BLANKS)}"{name}"{draw(BLANKS)}:{draw(BLANKS)}"{value}"{draw(BLANKS)}' for name, value in found]
    return "{" + (",".join(items) or draw(BLANKS)) + "}"


def quoted(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return texts.map(lambda text: f'"{text}"')


INT = st.integers(-(2**31), 2**31 - 1).map(str)
LONG = st.integers(-(10**18) + 1, 10**18 - 1).map(str)
PLAIN_HOST = quoted(st.sampled_from(("10.1.2.3:30001", "255.255.255.255:2147483647", "0.0.0.0:0", "128.0.9.1:10911")))
USUAL: dict[str, st.SearchStrategy[str]] = {
    "topic": quoted(st.sampled_from(TOPICS)),
    "body": quoted(st.one_of(PLAIN_TEXT, BASE64)),
    "bodyEncoding": quoted(st.sampled_from(("utf8", "base64"))),
    "properties": pairs(st.sampled_from(("KEYS", "TAGS", "UNIQ_KEY", "REAL_TOPIC", "a")), PLAIN_TEXT.filter(bool)),
    "queueId": st.integers(0, 2).map(str),
    "flag": INT,
    "sysFlag": st.sampled_from(("0", "1", "16", "48", "64", "1793")),
    "reconsumeTimes": INT,
    "bornTimestamp": LONG,
    "preparedTransactionOffset": LONG,
    "bodyCrc": st.just("0"),  # the right one, put in where the line is made
    "physicalOffset": LONG,
    "bornHost": PLAIN_HOST,
    "storeHost": PLAIN_HOST,
    "queueOffset": LONG,
    "msgId": quoted(PLAIN_TEXT),
}
STRANGE = USUAL | {
    "topic": quoted(st.one_of(st.sampled_from(("SCHEDULE_TOPIC_XXXX", "new", "../x", "", "a" * 128)), RAW_TEXT)),
    "body": quoted(st.one_of(RAW_TEXT, st.sampled_from(("x" * 300, "y" * 3900, "z" * 5000)))),
    "bodyEncoding": quoted(st.sampled_from(("hex", "rot13", ""))),
    "properties": pairs(NAME, st.one_of(PLAIN_TEXT, RAW_TEXT)),
    "sysFlag": st.sampled_from(("4", "8", "12", "128", "-1", "2147483648")),
    "bornHost": quoted(HOST),
    "storeHost": quoted(HOST),
    "msgId": quoted(RAW_TEXT),
    "damage": st.sampled_from(("null", '"bad-magic"')),
} | dict.fromkeys(
    ("queueId", "flag", "reconsumeTimes", "bornTimestamp", "preparedTransactionOffset", "bodyCrc", "physicalOffset",
     "queueOffset"), NUMBER
)  # fmt: skip
SCARS = (b"", b",", b"}", b"{", b'"', b"\\", b"\xff", b"\x00", b"\x0b", b" ", b"x")


def rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 7)) == 7


def crc_of(said: dict[str, str]) -> str:
    """bodyCrc of the body that a line says; 0 where it says none."""
    raw = said.get("body", "").encode()[1:-1]
    try:
        body = base64.b64decode(raw, validate=True) if said.get("bodyEncoding") == '"base64"' else raw
    except ValueError:
        return "0"
    return str(masked_crc32(body))


@st.composite
def line(draw: st.DrawFn) -> bytes:
    """A line with at most a few things wrong."""
    keys = [
        "topic",
        "body",
        *draw(st.lists(st.sampled_from(sorted({*USUAL} - {"topic", "body"})), max_size=6, unique=True)),
    ]
    if rarely(draw):
        keys.append(draw(st.sampled_from([*keys, "damage"])))
    if rarely(draw):
        keys.remove(draw(st.sampled_from(keys)))
    keys = draw(st.permutations(keys))
    strange = draw(st.sampled_from(["", *keys]))
    values = (
        OTHER if key == strange and rarely(draw) else STRANGE[key] if key in (strange, "damage") else USUAL[key]
        for key in keys
    )
    said = [(key, draw(value)) for key, value in zip(keys, values, strict=True)]
    crc = crc_of(dict(said))
    items = []
    for key, value in said:
        told = crc if key == "bodyCrc" != strange and not rarely(draw) else value
        items.append(f'{draw(BLANKS)}"{key}"{draw(BLANKS)}:{draw(BLANKS)}{told}{draw(BLANKS)}')
    if rarely(draw) and rarely(draw):
        items.append('"tags":"a"')
    text = f"{draw(BLANKS)}{{{','.join(items)}}}{draw(BLANKS)}".encode("utf-8", "surrogatepass")
    if rarely(draw):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(SCARS)) + text[at + draw(st.integers(0, 2)) :]
    return text.replace(b"\n", b" ") + draw(st.sampled_from((b"\n", b"\n", b"\n", b"\r\n")))


LINES = st.lists(
    st.one_of(line(), line(), line(), line(), st.sampled_from((b"\n", b" \r\n", b"[]\n"))), min_size=1, max_size=12
)


@settings(PROPERTY, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lines=LINES, size=st.integers(1, 12), profile=st.sampled_from(sorted(PROFILES)), has_end=st.booleans())
def test_lines_are_stored_as_one_by_one(lines: list[bytes], size: int, profile: str, has_end: bool) -> None:
    lines = lines if has_end else [*lines[:-1], lines[-1].rstrip(b"\n") or b" "]
    of_store = PutSettings(PROFILES[profile], max_message_size=4000)
    with tempfile.TemporaryDirectory() as folder:
        wanted = one_by_one(Path(folder) / "a", lines, settings=of_store)
        assert in_blocks(Path(folder) / "b", lines, size, settings=of_store) == wanted


NOT_READ = (
    "queueOffset",
    "size",
    "bodyLength",
    "bornTime",
    "storeTimestamp",
    "storeTime",
    "msgId",
    "tagsCode",
    "path",
    "detail",
)
PLAIN = {
    "topic only": b'{"topic":"T"}',
    "blanks": b' {\t"topic" : "T"\r, "queueId" : 2 } \r\n',
    "a body": b'{"topic":"T","body":"a~b\x7f c"}',
    "base64": b'{"topic":"T","body":"QQ==","bodyEncoding":"base64"}',
    "no bytes of base64": b'{"topic":"T","body":"","bodyEncoding":"base64"}',
    "properties": b'{"topic":"T","properties":{ "KEYS":"a b" , "REAL_TOPIC":"x"}}',
    "a copy": b'{"topic":"T","body":"","physicalOffset":0,"msgId":"AB","tagsCode":-7}',
    "the CRC of its body": b'{"topic":"T","body":"123456789","bodyCrc":1274296614}',
    "the CRC of a body in base64": b'{"topic":"T","body":"MTIzNDU2Nzg5","bodyEncoding":"base64","bodyCrc":1274296614}',
    "the CRC of no body": b'{"topic":"T","bodyCrc":0}',
    "all keys of dump": json.dumps(
        dict.fromkeys(NOT_READ, 7) | dict.fromkeys(("topic", "msgId", "storeTime"), "T")
    ).encode(),
    "hosts": b'{"topic":"T","bornHost":"255.0.0.1:9","storeHost":"1.2.3.4:65535"}',
    "numbers": b'{"topic":"T","flag":-2147483648,"bornTimestamp":-5,"sysFlag":48,"reconsumeTimes":2147483647}',
}
NOT_PLAIN = {
    "no topic": b'{"body":"x"}',
    "a new queue": b'{"topic":"T","queueId":3}',
    "an escape": b'{"topic":"T","body":"\\n"}',
    "no ASCII": '{"topic":"T","body":"é"}'.encode(),
    "a key that is none": b'{"topic":"T","tags":"a"}',
    "another body than was dumped": b'{"topic":"T","body":"123456788","bodyCrc":1274296614}',
    "another body than was dumped, in base64": (
        b'{"topic":"T","body":"MTIzNDU2Nzg4","bodyEncoding":"base64","bodyCrc":1274296614}'
    ),
    "a key twice": b'{"topic":"T","topic":"T"}',
    "a property twice": b'{"topic":"T","properties":{"a":"b","a":"c"}}',
    "a property without a value": b'{"topic":"T","properties":{"a":""}}',
    "a delay": b'{"topic":"T","properties":{"DELAY":"3"}}',
    "a half message": b'{"topic":"T","sysFlag":4}',
    "a compressed body": b'{"topic":"T","sysFlag":1}',
    "an inner batch": b'{"topic":"T","sysFlag":128}',
    "damage": b'{"topic":"T","damage":null}',
    "a copy without a body": b'{"topic":"T","physicalOffset":0}',
    "bits behind base64": b'{"topic":"T","body":"QR==","bodyEncoding":"base64"}',
    "data behind padding": b'{"topic":"T","body":"AA=A","bodyEncoding":"base64"}',
    "padding alone": b'{"topic":"T","body":"====","bodyEncoding":"base64"}',
    "a fraction": b'{"topic":"T","queueId":1.0}',
    "a comma too many": b'{"topic":"T",}',
    "two objects": b'{"topic":"T"}{"topic":"T"}',
    "a line cut off": b'{"topic":"T","body":"x',
    "a host of three": b'{"topic":"T","bornHost":"1.2.3:4"}',
    "a port that clients reject": b'{"topic":"T","storeHost":"1.2.3.4:65536"}',
    "a large record": b'{"topic":"T","body":"' + b"x" * 4000 + b'"}',
    "many properties": json.dumps({"topic": "T", "properties": {f"p{number}": "x" for number in range(65)}}).encode(),
}


@pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN)
def test_the_kernel_takes(plain: bytes) -> None:
    assert taken(plain)


@pytest.mark.parametrize("not_plain", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_the_kernel_leaves(not_plain: bytes) -> None:
    assert not taken(not_plain)


@pytest.mark.parametrize("profile", PROFILES)
def test_files_roll_and_every_size_finds_its_end(profile: str, tmp_path: Path) -> None:
    lines = [
        json.dumps({"topic": "T", "queueId": number % 3, "body": "b" * (number * 7 % 900)}).encode() + b"\n"
        for number in range(400)
    ]
    of_store = PutSettings(PROFILES[profile])
    wanted = one_by_one(tmp_path / "a", lines, settings=of_store)
    assert wanted[2] == 400
    assert in_blocks(tmp_path / "b", lines, 400, settings=of_store) == wanted


def test_more_than_the_kernel_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.operations.append.line_encoder.RECORDS_AT_ONCE", 1000)
    lines = [json.dumps({"topic": "T", "body": "b" * (number * 7 % 1200)}).encode() + b"\n" for number in range(100)]
    assert in_blocks(tmp_path / "b", lines, 100) == one_by_one(tmp_path / "a", lines)


def test_limits_of_sizes(tmp_path: Path) -> None:
    large = Geometry(65536, 200, 10, 40)
    bodies = [{"topic": "T", "body": "b" * size} for size in (999, 1000, 1001)]
    values = [
        {"topic": "T", "body": "", "physicalOffset": 0, "properties": {"n": "v" * size}}
        for size in (32763, 32764, 32765, 40000)
    ]
    lines = [json.dumps(row).encode() + b"\n" for row in (*bodies, *values)]
    of_store = PutSettings(max_message_size=1000)
    wanted = one_by_one(tmp_path / "a", lines, settings=of_store, geometry=large)
    assert [refused[0] for refused in wanted[1]] == [(3,), (6,), (7,)]
    assert in_blocks(tmp_path / "b", lines, 7, settings=of_store, geometry=large) == wanted


def test_a_store_with_property_crcs_has_no_encoder(tmp_path: Path) -> None:
    store = MessageStore.create(tmp_path / "s", PutSettings(property_crc=True), SMALL)
    encoder = encoder_of(store)
    store.close()
    assert encoder is None


def test_a_store_that_fails_ends_it_at_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s", by_kernel=True)
    no = PutMessageResult(PutMessageStatus.UNKNOWN_ERROR, remark="cannot be written: no")
    monkeypatch.setattr(store.store, "put_encoded", lambda *_: PutEncodedResult(2, no, []))
    store.lines.put(b"\n" + b'{"topic":"T"}\n' * 4)
    assert store.appender.ended == ((2,), "UNKNOWN_ERROR: cannot be written: no")
    assert (store.lines.next_line, store.lines.takes_no_more, store.refused) == (2, True, [])
    assert store.close()[2] == 0


@pytest.mark.parametrize("by_kernel", [True, False])
def test_a_store_that_takes_nothing_says_so(by_kernel: bool, tmp_path: Path) -> None:
    store = Store(tmp_path / "s", by_kernel=by_kernel)
    store.store.close()
    store.lines.put(b'{}\n{"topic":"T"}\n' + b'{"topic":"T"}\n{}\n' * 2)
    ended = store.appender.ended
    assert ended is not None
    assert ended.lines == (2,)
    assert ended.why.startswith("SERVICE_NOT_AVAILABLE")
    assert [lines for lines, _ in store.refused] == [(1,)]


def test_what_is_stored_is_counted_before_anybody_hears_of_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", by_kernel=False)

    def hear(_: AppendMessageResult) -> None:
        raise BrokenPipeError

    store.appender.on_stored = hear
    with pytest.raises(BrokenPipeError):
        store.lines.put(b'{"topic":"T"}\n' * 5)
    assert store.close()[2:] == (5, {("T", 0): QueueGrowth(0, 5)})


@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if name != "471-cqext"])
def test_the_lines_of_golden_stores(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["dump", str(unpack(name, tmp_path)), "--body", "base64", "-o", "jsonl"])
    lines = capsys.readouterr().out.encode().splitlines(keepends=True)
    geometry = Geometry(262144, 6000, 1000, 4000)
    wanted = one_by_one(tmp_path / "a", lines, geometry=geometry)
    assert wanted[2] > 0
    assert in_blocks(tmp_path / "b", lines, len(lines), geometry=geometry) == wanted


def test_queues_are_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    encode = LineEncoder.encode

    def spied(self: LineEncoder, lines: Any, position: int) -> Any:
        found = encode(self, lines, position)
        runs.append(len(found.rows))
        return found

    monkeypatch.setattr(LineEncoder, "encode", spied)
    lines = [
        json.dumps({"topic": f"new-{number % 4}", "queueId": number % 5}).encode() + b"\n" for number in range(500)
    ]
    assert in_blocks(tmp_path / "b", lines, 500)[2] == 500
    assert sum(runs) == 480
