"""append: what it takes, what it refuses, and what it says."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.verbs.change import append
from rmqctl.cli.verbs.change.append import QUEUE_ID, blocks_of_lines
from rmqctl.format.message import ROW_KEYS
from rmqctl.logfile.writable_mapped_file import WritableMappedFile
from rmqctl.operations.append.message_from_json import Line
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.topic_config import QUEUE_NUMS_MAX
from tests.conftest import READABLE_NAMES, Result, Rmqctl, tree_hash, unpack
from tests.support.property_settings import PROPERTY

Append = Callable[..., Result]


def sizes(log_file: int, queue_file: int, slots: int, entries: int) -> tuple[object, ...]:
    files = ("--commitlog-file-size", log_file, "--consumequeue-file-size", queue_file)
    return (*files, "--index-slots", slots, "--index-entries", entries)


SIZES, LARGE = sizes(65536, 1000, 100, 400), sizes(262144, 6000, 1000, 4000)
DELIVERY_TOPICS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_", "rmq_sys_REVIVE_LOG_", "rmq_sys_wheel_timer")
GIVEN_ANEW = {"queueOffset", "physicalOffset", "size", "storeTimestamp", "storeTime", "msgId", "path", "tagsCode"}


def rows_of(rmqctl: Rmqctl, store: Path) -> list[dict[str, Any]]:
    return rmqctl("dump", store, "--body", "base64", "-o", "jsonl").rows()


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What a copy has in common with the original."""
    own = {key: value for key, value in row.items() if key not in GIVEN_ANEW}
    own["properties"] = {
        key: value for key, value in row["properties"].items() if key not in ("__CRC32#", "INNER_MULTI_QUEUE_OFFSET")
    }
    return own


@pytest.fixture
def store(tmp_path: Path, rmqctl: Rmqctl) -> Path:
    root = tmp_path / "store"
    made = rmqctl("append", root, "--create", "--profile", "4.9", *SIZES, "--topic", "OrderPaid", "--body", "first")
    assert made.code == 0
    return root


@pytest.fixture
def append_lines(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> Append:
    """Appends lines to the store, from a file, with options."""

    def call(text: str | bytes, *options: object) -> Result:
        (tmp_path / "lines").write_bytes(text.encode() if isinstance(text, str) else text)
        return rmqctl("append", store, "--from", tmp_path / "lines", *options)

    return call


@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if name != "471-cqext"])
def test_dump_and_append_copy_a_stores_messages(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    golden = unpack(name, tmp_path)
    lines = tmp_path / "lines"
    lines.write_text(rmqctl("dump", golden, "--body", "base64", "-o", "jsonl").out)
    copy = tmp_path / "copy"
    options = "--create", "--profile", "5.3", *LARGE, "--from", lines
    assert rmqctl("append", copy, *options, "--with-system-topics").code == 0
    assert [kept(row) for row in rows_of(rmqctl, copy)] == [kept(row) for row in rows_of(rmqctl, golden)]
    assert rmqctl("verify", copy).code == 0


@pytest.mark.parametrize(("name", "stats"), [("497-delay", ()), ("broker-497", ("--stats",)), ("broker-533", ())])
def test_a_copy_makes_no_broker_deliver_again(
    name: str, stats: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl
) -> None:
    golden = unpack(name, tmp_path)
    lines = tmp_path / "lines"
    lines.write_text(rmqctl("dump", golden, "--body", "base64", "-o", "jsonl").out)
    rows = rows_of(rmqctl, golden)
    delivers = Counter(row["topic"] for row in rows if row["topic"].startswith(DELIVERY_TOPICS))
    copy = tmp_path / "copy"
    options = "--create", "--profile", "5.3", *LARGE, *stats, "--from", lines, "-o", "json"
    result = rmqctl("append", copy, *options)
    assert (result.code, delivers.total() > 0) == (0, True)
    assert {row["topic"]: row["messages"] for row in result.document()["leftOutTopics"]} == delivers
    assert all(f"{topic} {count}" in result.err for topic, count in delivers.items())
    assert [kept(row) for row in rows_of(rmqctl, copy)] == [kept(row) for row in rows if row["topic"] not in delivers]
    assert rmqctl("verify", copy).code == 0


def test_from_stdin_and_in_batches(store: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(
        json.dumps({"topic": "T", "queueId": number // 10, "body": f"b{number}"}) + "\n" for number in range(40)
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    result = rmqctl("append", store, "--from", "-", "--batch", 7, "-o", "jsonl")
    assert result.code == 0
    assert [(row["queueId"], row["queueOffset"]) for row in result.rows()] == [
        (number // 10, number % 10) for number in range(40)
    ]
    bodies = [row["body"] for row in rmqctl("dump", store, "--topic", "T", "--body", "utf8", "-o", "jsonl").rows()]
    assert bodies == [f"b{number}" for number in range(40)]
    assert rmqctl("verify", store).code == 0


def test_lines_that_come_in_pieces(store: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            del size
            return super().read1(7)

    lines = (
        "".join(json.dumps({"topic": "T", "body": f"b{number}"}) + "\n" for number in range(40))
        + "7\n\n"
        + '{"topic":"T","body":"last"}'
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Pipe(lines.encode())))
    result = rmqctl("append", store, "--from", "-", "-o", "json")
    assert (
        result.code,
        "line 41: not stored: " in result.err,
        "41 messages appended as 4.9 does, 1 refused" in result.err,
    ) == (
        4,
        True,
        True,
    )
    assert result.document()["queues"] == [{"topic": "T", "queueId": 0, "firstOffset": 0, "nextOffset": 41}]
    bodies = [row["body"] for row in rmqctl("dump", store, "--topic", "T", "--body", "utf8", "-o", "jsonl").rows()]
    assert bodies == [*(f"b{number}" for number in range(40)), "last"]
    assert rmqctl("verify", store).code == 0


BAD_LINES = {
    "not json": "{",
    "a list": "[]",
    "no topic": "{}",
    "a body that is none": '{"topic":"T","body":7}',
    "no hex": '{"topic":"T","body":"zz","bodyEncoding":"hex"}',
    "a strange encoding": '{"topic":"T","body":"zz","bodyEncoding":"rot13"}',
    "a queueId that is too large": '{"topic":"T","queueId":2147483648}',
    "a host that is none": '{"topic":"T","bornHost":"somewhere"}',
    "a port that clients reject": '{"topic":"T","bornHost":"10.1.2.3:65536"}',
    "a port below zero": '{"topic":"T","storeHost":"[::1]:-1"}',
    "properties that are none": '{"topic":"T","properties":[]}',
    "a separator in a property": '{"topic":"T","properties":{"a":"b\\u0002c"}}',
    "a topic that leads out": '{"topic":"../../x"}',
    "a body larger than a file": json.dumps({"topic": "T", "body": "x" * 70000}),
    "a dump without bodies": '{"topic":"T","physicalOffset":0,"bodyLength":3}',
    "half a surrogate pair in a property": '{"topic":"T","properties":{"a":"\\ud800"}}',
    "a topic that no folder can be named by": json.dumps({"topic": "t" * 256}),
    "a damaged record": '{"topic":"T","damage":"bad-body-crc","physicalOffset":0}',
    "deep json": "[" * 100_000,
    "a negative queueId": '{"topic":"T","queueId":-1}',
    "a dump without bodies, of an empty one": '{"topic":"T","physicalOffset":0,"bodyLength":0}',
    "a body that is not the one that was dumped": '{"topic":"T","body":"123456788","bodyCrc":1274296614}',
    "a CRC that is none": '{"topic":"T","body":"123456789","bodyCrc":"cbf43926"}',
    "a key that is none": '{"topic":"T","tags":"a"}',
    "a queueId that no topic gets": '{"topic":"T","queueId":65536}',
    "the other separator in a property": '{"topic":"T","properties":{"a":"b\\u0001c"}}',
}


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_told_and_the_others_are_stored(
    bad: str, store: Path, append_lines: Append, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    result = append_lines(f'{{"topic":"A","body":"1"}}\n{bad}\n{{"topic":"B","body":"2"}}\n')
    assert result.code == 4
    assert "line 2: not stored: " in result.err
    assert [row["topic"] for row in rows_of(rmqctl, store)] == ["OrderPaid", "A", "B"]
    assert rmqctl("verify", store).code == 0
    assert not (tmp_path / "x").exists()


def test_stop_on_error(store: Path, append_lines: Append, rmqctl: Rmqctl) -> None:
    assert append_lines('{"topic":"A"}\n{\n{"topic":"B"}\n', "--stop-on-error").code == 4
    assert [row["topic"] for row in rows_of(rmqctl, store)] == ["OrderPaid", "A"]
    assert rmqctl("verify", store).code == 0


def test_one_message_with_everything(store: Path, rmqctl: Rmqctl) -> None:
    words = ("--tags", "paid", "--keys", "k1 k2", "--property", "a=b=c", "--queue", 3, "--transaction", "commit")
    result = rmqctl("append", store, "--topic", "T", "--body", "\u00e9", *words, "-o", "json", "--stats")
    assert result.document()["queues"] == [{"topic": "T", "queueId": 3, "firstOffset": 0, "nextOffset": 1}]
    assert "1 message appended as 4.9 does in " in result.err
    stats = result.document()["stats"]
    assert (stats["putMessageTimesTotal"], stats["putMessageTopicTimesTotal"], stats["putMessageFailedTimes"]) == (
        1,
        {"T": 1},
        0,
    )
    assert re.search(r"^putMessageTopicTimesTotal T +1$", result.err, re.MULTILINE)
    row = rmqctl("query", store, "--topic", "T", "--key", "k2", "--body", "utf8", "-o", "jsonl").rows()[0]
    assert (row["body"], row["sysFlag"], row["queueId"]) == ("\u00e9", 8, 3)
    assert {key: row["properties"][key] for key in ("TAGS", "KEYS", "a")} == {
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "a": "b=c",
    }
    assert len(row["properties"]["UNIQ_KEY"]) == 32


def test_a_delay_level_goes_to_the_schedule(store: Path, rmqctl: Rmqctl) -> None:
    row = rmqctl("append", store, "--topic", "T", "--body", "x", "--delay-level", 2, "-o", "jsonl").rows()[0]
    assert (row["topic"], row["queueId"]) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert rmqctl("verify", store).code == 0


def test_sync_and_a_body_from_a_file(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)))
    assert rmqctl("append", store, "--topic", "T", "--body-file", body, "--sync").code == 0
    row = rmqctl("dump", store, "--tail", 1, "--body", "hex", "-o", "jsonl").rows()[0]
    assert bytes.fromhex(row["body"]) == bytes(range(256))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--topic", "T"),
        ("--body", "x"),
        ("--topic", "T", "--body", "x", "--from", "-"),
        ("--topic", "T", "--body", "x", "--property", "a"),
        ("--topic", "T", "--body", "x", "--property", "a=1", "--property", "a=2"),
        ("--topic", "T", "--body", "x", "--property", "KEYS=a", "--keys", "b"),
        ("--topic", "T", "--body", "x", "--property", "TAGS=a", "--tags", "b"),
        ("--topic", "T", "--body", "x", "--property", "DELAY=1", "--delay-level", "2"),
        ("--topic", "T", "--body", "x", "--property", "a=b\x01c"),
        ("--topic", "T", "--body", "x", "--queue", "65536"),
        ("--topic", "no topic", "--body", "x"),
        ("--topic", "T", "--body", "x", "--index-slots", "7"),
        ("--topic", "T", "--body", "x", "--profile", "4.9", "--property-crc"),
        ("--topic", "T", "--body", "x", "--create"),
        ("--topic", "T", "--body", "x", "--create", "--consumequeue-file-size", "21"),
        ("--topic", "T", "--body", "x", "--create", "--index-entries", "1"),
    ],
)
def test_wrong_usage_changes_nothing(arguments: tuple[str, ...], store: Path, rmqctl: Rmqctl) -> None:
    before = tree_hash(store)
    assert rmqctl("append", store, *arguments).code == 2
    assert tree_hash(store) == before


@pytest.mark.parametrize(
    ("name", "lost", "code", "said"),
    [
        ("497-crash", None, 1, "(`rmqctl recover STORE --dry-run` shows what it takes)"),
        ("broker-497", f"commitlog/{262144:020d}", 1, "file-gap"),
        ("broker-533-rocksdb", None, 13, "RocksDB"),
        ("326-basic", None, 13, "read-only"),
    ],
)
def test_stores_that_may_not_be_appended_to(
    name: str, lost: str | None, code: int, said: str, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root = unpack(name, tmp_path)
    if lost is not None:
        (root / lost).unlink()
    before = tree_hash(root)
    result = rmqctl("append", root, "--topic", "T", "--body", "x")
    assert (result.code, len(result.err.splitlines())) == (code, 1)
    assert said.replace("STORE", str(root)) in result.err
    assert tree_hash(root) == before


def test_what_is_no_store_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("append", tmp_path / "none", "--topic", "T", "--body", "x").code == 10
    assert not (tmp_path / "none").exists()


def test_the_property_crc_covers_every_record(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "crc"
    assert (
        rmqctl("append", root, "--create", *SIZES, "--property-crc", "--topic", "T", "--body", "x", "--tags", "t").code
        == 0
    )
    assert rmqctl("append", root, "--property-crc", "--topic", "T", "--body", "y").code == 0
    assert all("__CRC32#" in row["properties"] for row in rows_of(rmqctl, root))
    assert rmqctl("verify", root).code == 0
    assert ReadOnlyStore(root).path.version_signs() == ["rocksdbstore", "abort.bak"]


def test_a_line_that_is_no_utf_8_is_told(append_lines: Append) -> None:
    result = append_lines(b"\xff\xfe\n")
    assert (result.code, "line 1: not stored: not UTF-8" in result.err) == (4, True)


def test_a_new_store_is_as_broker_conf_says(tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    folders = [tmp_path / "log a", tmp_path / "log b"]
    conf.write_text(
        f"storePathCommitLog={folders[0]},{folders[1]}\n"
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
        "enableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt=1000\nflushDiskType=SYNC_FLUSH\n"
        "transientStorePoolEnable=true\nenabledAppendPropCRC=true\nmessageDelayLevel=7s\n"
    )
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"topic": "T", "body": f"{at}" * 100}) + "\n" for at in range(400)))
    root = tmp_path / "new"
    assert rmqctl("append", root, "--create", "--broker-conf", conf, "--from", lines).code == 0
    assert rmqctl("append", root, "--broker-conf", conf, "--topic", "T", "--body", "x", "--delay-level", 1).code == 0
    assert rmqctl("verify", root, "--broker-conf", conf).code == 0
    assert [min(int(path.name) // 65536 % 2 for path in folder.iterdir()) for folder in folders] == [0, 1]
    assert len(list((root / "consumequeue_ext" / "T" / "0").iterdir())) == 9
    rows = rmqctl("dump", root, "--broker-conf", conf, "-o", "jsonl").rows()
    assert len(rows) == 401
    assert all("__CRC32#" in row["properties"] for row in rows)
    assert rows[-1]["tagsCode"] == rows[-1]["storeTimestamp"] + 7000


@pytest.mark.parametrize(
    ("conf", "code", "said"),
    [("maxMessageSize=4M", 2, "maxMessageSize='4M'"), ("mappedFileSizeCommitLog=4096", 1, "file-length")],
)
def test_a_broker_conf_that_is_bad_or_not_the_stores_is_told(
    conf: str, code: int, said: str, store: Path, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    (tmp_path / "broker.conf").write_text(conf + "\n")
    before = tree_hash(store)
    result = rmqctl("append", store, "--broker-conf", tmp_path / "broker.conf", "--topic", "T", "--body", "x")
    assert (result.code, said in result.err) == (code, True)
    assert tree_hash(store) == before


def test_what_cannot_go_as_a_batch_goes_one_by_one(append_lines: Append) -> None:
    bodies = ("x" * (70000 if number == 3 else 10) for number in range(8))
    result = append_lines("".join(json.dumps({"topic": "T", "body": body}) + "\n" for body in bodies), "--batch", 4)
    assert result.code == 4
    assert "line 4: not stored: " in result.err
    assert "7 messages appended" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_in_order_and_says_what_is_in(number: signal.Signals, store: Path, rmqctl: Rmqctl) -> None:
    """What was read is stored and told, whatever still comes."""
    command = append_command(store, "--from", "-", "-o", "json")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as appending:
        assert appending.stdin is not None
        appending.stdin.write('{"topic":"T"}\n{"topic":"T"}\n')
        appending.stdin.flush()
        while b"T" not in (store / "commitlog" / f"{0:020d}").read_bytes()[200:]:  # a trickle does not wait for more
            assert appending.poll() is None
            time.sleep(0.02)
        appending.send_signal(number)
        out, err = appending.communicate(timeout=60)
    assert appending.returncode == 130
    assert json.loads(out)["queues"] == [{"topic": "T", "queueId": 0, "firstOffset": 0, "nextOffset": 2}]
    assert "2 messages appended as 4.9 does; go on with line 3\n" in err
    assert not (store / "abort").exists()
    assert rmqctl("verify", store).code == 0


def test_more_queues_than_files_may_be_open(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(
        "".join(json.dumps({"topic": f"T{number}", "queueId": number % 3}) + "\n" for number in range(400))
    )
    command = shlex.join(append_command(tmp_path / "s", "--create", *SIZES, "--from", lines))
    words = f"ulimit -n 256; exec {command}"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "400 messages appended" in done.stderr) == (0, True)


def test_dump_with_text_copies_the_bodies_that_are_exact(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Inflated bodies, and those that are no UTF-8, are refused: the others come as they were."""
    golden = unpack("broker-497", tmp_path)
    lines = tmp_path / "lines"
    lines.write_text(rmqctl("dump", golden, "--body", "utf8", "-o", "jsonl").out)
    copy = tmp_path / "copy"
    result = rmqctl("append", copy, "--create", "--profile", "4.9", *LARGE, "--from", lines, "--with-system-topics")
    originals = rows_of(rmqctl, golden)
    exact = [row for row in originals if not row["sysFlag"] & 1]
    assert len(exact) < len(originals)
    assert [kept(row) for row in rows_of(rmqctl, copy)] == [kept(row) for row in exact]
    assert result.code == 4
    assert "dump it with --body base64" in result.err
    assert rmqctl("verify", copy).code == 0


@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_a_body_that_is_no_text_is_not_copied_as_one(
    output: str, store: Path, append_lines: Append, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """By the kernel and without."""
    (tmp_path / "body").write_bytes(b"\xff\xfe")
    assert rmqctl("append", store, "--topic", "T", "--body-file", tmp_path / "body").code == 0
    result = append_lines(rmqctl("dump", store, "--body", "utf8", "-o", "jsonl").out, "-o", output)
    assert result.code == 4
    assert "line 2: not stored: the body is not what was dumped (its CRC-32 is " in result.err
    assert [row["topic"] for row in rows_of(rmqctl, store)] == ["OrderPaid", "T", "OrderPaid"]


def test_a_stored_property_is_copied_with_its_separator(store: Path, append_lines: Append, rmqctl: Rmqctl) -> None:
    line = '{"topic":"T","body":"","physicalOffset":0,"properties":{"a":"b\\u0001c"}}\n'
    assert append_lines(line).code == 0
    assert rows_of(rmqctl, store)[-1]["properties"] == {"a": "b\x01c"}


def test_a_line_may_have_what_dump_prints() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(Line)}
    assert names == set(ROW_KEYS)


def test_queue_ids_are_those_that_a_topic_gets(store: Path, rmqctl: Rmqctl) -> None:
    assert QUEUE_ID.max == QUEUE_NUMS_MAX - 1
    assert rmqctl("append", store, "--topic", "T", "--body", "x", "--queue", QUEUE_NUMS_MAX - 1).code == 0
    assert f'"readQueueNums":{QUEUE_NUMS_MAX}' in (store / "config" / "topics.json").read_text().replace(" ", "")


def test_lines_with_the_same_fault_are_told_together(append_lines: Append) -> None:
    bad = '{"topic":"T","physicalOffset":0}\n'
    result = append_lines(bad * 300 + '{"topic":"T"}\n' + bad * 2 + "{}\n", "-o", "json")
    no_body = "the line has no body: dump with --body base64"
    assert result.err.splitlines() == [
        f"line 1: not stored: {no_body}",
        "lines 2 to 300: not stored, for the same reason",
        f"line 302: not stored: {no_body}",
        "line 303: not stored, for the same reason",
        "line 304: not stored: the line has no topic",
        "1 message appended as 4.9 does, 303 refused",
    ]
    assert (result.document()["messages"], result.document()["refusedLines"]) == (1, 303)


def test_a_key_that_is_none_is_named(append_lines: Append) -> None:
    told = append_lines('{"topic":"T","tags":"a"}\n').err
    assert told.startswith("line 1: not stored: tags: a line has no such key; TAGS, KEYS and")


def test_a_byte_order_mark_in_front_is_none_of_the_first_line(append_lines: Append) -> None:
    result = append_lines(b'\xef\xbb\xbf{"topic":"T"}\n\xef\xbb\xbf{"topic":"T"}\n')
    assert (result.code, "line 2: not stored" in result.err, "1 message appended" in result.err) == (4, True, True)


def test_one_message_that_cannot_be_stored_is_wrong_usage(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(70000))
    result = rmqctl("append", store, "--topic", "T", "--body-file", large, "-o", "json")
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert result.err.startswith("rmqctl: not stored: MESSAGE_ILLEGAL: a record of ")
    assert rmqctl("verify", store).code == 0


def test_messages_that_no_queue_has_are_told(store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("append", store, "--topic", "T", "--body", "x", "--transaction", "prepared", "-o", "json")
    assert result.code == 0
    assert {"queues": [], "messages": 1, "inNoQueue": 1, "refusedLines": 0}.items() <= result.document().items()
    assert (
        f"in no queue, as with brokers; `rmqctl dump {store} --transaction prepared` or rollback shows them"
        in result.err
    )


def test_create_takes_a_store_that_nothing_was_put_into(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "new"
    create = ("append", root, "--create", *SIZES)
    assert rmqctl(*create, "--from", os.devnull).code == 0
    assert rmqctl(*create, "--topic", "T", "--body", "x").code == 0
    before = tree_hash(root)
    assert rmqctl(*create, "--topic", "T", "--body", "x").code == 2
    assert tree_hash(root) == before


REFUSED = {
    "lines": (("--from", "LINES"), 4),
    "one message": (("--topic", "T", "--body", "x", "--queue-id", "1", "--property", "\1=x"), 2),
    "stop": (("--from", "LINES", "--stop-on-error"), 4),
    "too large": (("--topic", "T", "--body", "x" * 200_000), 2),
}


@pytest.mark.parametrize("stood", [None, "an empty folder", "a store without messages"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_failed_create_leaves_nothing(case: str, stood: str | None, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, lines = tmp_path / "far" / "new", tmp_path / "lines"
    lines.write_text("")
    if stood == "an empty folder":
        root.mkdir(parents=True)
    elif stood is not None:
        assert rmqctl("append", root, "--create", *SIZES, "--from", lines).code == 0
    lines.write_text("{}\n")
    before = sorted(tmp_path.rglob("*"))
    words, code = REFUSED[case]
    result = rmqctl("append", root, "--create", *SIZES, *(lines if word == "LINES" else word for word in words))
    assert (result.code, sorted(tmp_path.rglob("*"))) == (code, before)


def test_create_that_is_interrupted_before_the_first_message_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "new"
    command = append_command(root, "--create", *SIZES, "--from", "-")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (root / "abort").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert f"{root} was not created: no message was stored" in process.stderr.read()
    assert (process.returncode, root.exists()) == (130, False)


def test_lines_that_are_stored_keep_the_new_store(tmp_path: Path, rmqctl: Rmqctl) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"topic": "T", "body": "x"}\n{}\n')
    assert rmqctl("append", tmp_path / "new", "--create", *SIZES, "--from", lines).code == 4
    assert len(rmqctl("dump", tmp_path / "new", "-o", "jsonl").rows()) == 1


@pytest.mark.parametrize(
    "what", ["abort", "other", "commitlog/00000000000000000000", "config/topics.json", "checkpoint"]
)
def test_create_takes_no_other_store(what: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "new"
    (root / what).parent.mkdir(parents=True)
    (root / what).write_bytes(b"\0\1")
    before = tree_hash(root)
    assert rmqctl("append", root, "--create", "--topic", "T", "--body", "x").code == 2
    assert tree_hash(root) == before


def test_create_where_a_file_is(tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "file").write_text("x")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        result = rmqctl("append", root, "--create", "--topic", "T", "--body", "x")
        assert (result.code, result.err) == (10, f"rmqctl: {root}: this is a file, but a store is a folder\n")


def append_command(store: Path, *arguments: object) -> list[str]:
    return list(map(str, (sys.executable, "-m", "rmqctl", "append", store, *arguments)))


def test_a_reader_that_goes_away_does_not_change_what_is_told(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"topic":"T"}\n' * 3000)
    command = append_command(store, "--from", lines, "-o", "jsonl")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as appending:
        assert appending.stdout is not None
        assert appending.stderr is not None
        appending.stdout.readline()
        appending.stdout.close()
        told = appending.stderr.read()
    stored = len(rows_of(rmqctl, store)) - 1
    assert appending.returncode == 141
    assert 0 < stored < 3000
    assert (
        told
        == f"{stored} messages appended as 4.9 does; go on with line {stored + 1} (`tail -n +{stored + 1} {lines}`)\n"
    )
    assert rmqctl("verify", store).code == 0


@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_an_output_that_cannot_be_written_is_told_beside_what_is_stored(
    output: str, store: Path, rmqctl: Rmqctl
) -> None:
    with Path(os.devnull).open("rb") as not_for_writing:
        command = append_command(store, "--topic", "T", "--body", "x", "-o", output)
        result = subprocess.run(
            command, stdout=not_for_writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    told = "1 message appended as 4.9 does; the output could not be written: Bad file descriptor\n"
    assert (result.returncode, result.stderr) == (4, told)
    assert len(rows_of(rmqctl, store)) == 2


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("output", ["table", "jsonl"])
def test_a_full_disk_ends_it_at_the_first_line(
    output: str, at: int, store: Path, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel and without; what is after that line is not stored, also where it would fit."""
    lines = tmp_path / "my lines"
    lines.write_text("".join(json.dumps({"topic": "T", "body": "b" * 500}) + "\n" for _ in range(1000)))
    append, written = WritableMappedFile.append, 0

    def full(self: WritableMappedFile, data: bytes) -> None:
        nonlocal written
        written += "commitlog" in str(self.path)
        if written == at and "commitlog" in str(self.path):
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(WritableMappedFile, "append", full)
        result = rmqctl("append", store, "--from", lines, "-o", output)
    stored = len(rows_of(rmqctl, store)) - 1
    assert (result.code, stored > 0) == (4, at > 1)
    failed = "(CREATE_MAPPED_FILE_FAILED: no new file|UNKNOWN_ERROR: cannot be written)"
    why = f"ended at line {stored + 1}: {failed}: No space left on device"
    go_on = f"go on with line {stored + 1} (`tail -n +{stored + 1} '{lines}'`)"
    assert re.fullmatch(f"{stored} messages appended as 4.9 does; {why}; {re.escape(go_on)}\n", result.err)
    assert rmqctl("verify", store).code == 0


def test_one_message_on_a_full_disk(store: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(WritableMappedFile, "append", full)
        result = rmqctl("append", store, "--topic", "T", "--body", "x")
    told = f"rmqctl: {store}: not stored: UNKNOWN_ERROR: cannot be written: No space left on device\n"
    assert (result.code, result.out, result.err) == (4, "", told)
    assert rmqctl("verify", store).code == 0


def test_a_flush_that_fails_ends_it_at_its_line(
    store: Path, append_lines: Append, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushes = iter([True] * 4)
    flush = WritableMappedFile.flush

    def fail(self: WritableMappedFile, least_pages: int = 0) -> int:
        if "commitlog" in str(self.path) and not next(flushes, False):
            raise OSError(errno.EIO, "Input/output error")
        return flush(self, least_pages)

    with monkeypatch.context() as patch:
        patch.setattr(WritableMappedFile, "flush", fail)
        result = append_lines('{"topic":"T"}\n' * 9, "--sync", "-o", "jsonl")
    why = "cannot be flushed: Input/output error; it may be there all the same"
    go_on = f"go on with line 5 (`tail -n +5 {tmp_path / 'lines'}`)"
    assert (result.code, len(result.rows())) == (4, 4)
    assert result.err.splitlines() == [
        (
            "queues and index are incomplete (Input/output error), and `abort` remains: "
            f"`rmqctl recover {store}` makes them whole"
        ),
        f"4 messages appended as 4.9 does; ended at line 5: {why}; {go_on}",
    ]


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (2**20, "20 messages appended as 4.9 does"),
        (0, "2 messages appended as 4.9 does; go on with line 3 (`tail -n +3 {lines}`)"),
    ],
)
def test_queues_that_cannot_be_written_are_for_recover(
    ahead: int, told: str, store: Path, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end, or on the way: then what is in the log counts, and the first line that is not."""
    lines = tmp_path / "lines"
    lines.write_text('{"topic":"T"}\n' * 20)
    append = WritableMappedFile.append

    def full(self: WritableMappedFile, data: bytes) -> None:
        if "consumequeue" in str(self.path):
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        append(self, data)

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.operations.append.appender.DISPATCH_BYTES", ahead)
        patch.setattr(WritableMappedFile, "append", full)
        result = rmqctl("append", store, "--from", lines)
    assert result.code == 4
    assert result.err.splitlines() == [
        (
            f"queues and index are incomplete (No space left on device), and `abort` remains: `rmqctl recover {store}` "
            "makes them whole"
        ),
        told.format(lines=lines),
    ]
    assert rmqctl("recover", store, "--yes").code == 3
    assert rmqctl("queue", store, "-o", "jsonl").rows()[-1]["maxOffset"] == int(told.split(maxsplit=1)[0])
    assert rmqctl("verify", store).code == 0


def verdicts(rmqctl: Rmqctl, root: Path) -> set[str]:
    """The version that each verb takes a store for; `append` is given what it does not store."""
    lines = root.with_name("no-lines")
    lines.write_text("{}\n")
    said = rmqctl("append", root, "--from", lines).err.partition("appended as ")[2]
    return {
        rmqctl("info", root, "-o", "json").document()["version"]["profile"],
        rmqctl("recover", root, "--dry-run", "-o", "json").document()["profile"],
        said.partition(" does")[0],
    }


MESSAGE = ("--topic", "T", "--tags", "t", "--body", "x")


@pytest.mark.parametrize("profile", ["4.7", "4.9", "5.3", None])
def test_every_verb_takes_a_new_store_for_what_it_was_made_as(
    profile: str | None, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    """None: as the newest, where nothing says another."""
    root = tmp_path / "store"
    asked = () if profile is None else ("--profile", profile)
    assert rmqctl("append", root, "--create", *SIZES, *asked, *MESSAGE).code == 0
    assert verdicts(rmqctl, root) == {profile or "5.4"}
    (root / "config" / "topics.json").unlink()
    assert verdicts(rmqctl, root) == {profile or "5.4"}


def without_a_message(root: Path, profile: str, rmqctl: Rmqctl) -> None:
    assert rmqctl("append", root, "--create", *SIZES, "--profile", profile, "--from", os.devnull).code == 0


def test_a_store_of_5_without_a_message_is_no_older_one(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "store"
    without_a_message(root, "5.3", rmqctl)
    assert verdicts(rmqctl, root) == {"5.3"}
    assert rmqctl("info", root, "-o", "json").document()["version"]["guess"] == "5.x"


def test_a_store_of_4_without_a_message_does_not_show_its_version(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "store"
    without_a_message(root, "4.7", rmqctl)
    assert verdicts(rmqctl, root) == {"4.9"}
    told = "cannot tell which broker version wrote this store: assuming 4.9 (override with --profile or "
    assert told in rmqctl("append", root, "--from", os.devnull).err
    assert told not in rmqctl("append", root, "--profile", "4.7", *MESSAGE).err
    assert told not in rmqctl("append", root, *MESSAGE).err
    assert verdicts(rmqctl, root) == {"4.7"}


def test_a_killed_store_of_5_stays_one_when_it_is_recovered(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "store"
    program = (
        "import os, signal, sys; from rmqctl.cli.main import run; from rmqctl.store.engine.message_store import "
        "MessageStore as M; "
        "M.dispatch = lambda self: self.max_phy_offset and os.kill(os.getpid(), signal.SIGKILL); "
        "sys.exit(run(sys.argv[1:]))"
    )
    command = ["append", root, "--create", *SIZES, "--profile", "5.3", "--topic", "T", "--tags", "t", "--body", "x"]
    assert (
        subprocess.run([sys.executable, "-c", program, *map(str, command)], check=False).returncode == -signal.SIGKILL
    )
    assert not (root / "config").exists()
    asked = rmqctl("recover", root, "--yes")
    assert asked.code == 2
    assert "--profile 5.3 or --profile 5.4" in asked.err
    assert rmqctl("recover", root, "--yes", "--profile", "5.3").code == 3
    assert verdicts(rmqctl, root) == {"5.3"}
    assert rmqctl("append", root, "--topic", "T", "--body", "y").code == 0
    assert rmqctl("verify", root).code == 0


@pytest.mark.parametrize(("profile", "count"), [("4.7", 0), ("4.9", 0), ("5.3", 1)])
def test_an_index_file_without_an_entry_is_filled_from_entry_1(
    profile: str, count: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    root, line = tmp_path / "s", tmp_path / "line"
    line.write_text('{"topic": "T", "body": "x", "properties": {}}\n')
    assert rmqctl("append", root, "--create", "--profile", profile, *SIZES, "--from", line).code == 0
    for path in (root / "index").iterdir():
        path.unlink()
    path = root / "index" / "20261121091529472"
    path.write_bytes(struct.pack(">4q2i", 0, 0, 0, 0, 0, count).ljust(40 + 4 * 100 + 20 * 400, b"\0"))
    assert rmqctl("append", root, "--topic", "T", "--keys", "k", "--body", "y").code == 0
    assert [entry.name for entry in (root / "index").iterdir()] == [path.name]
    (slots_used, entries) = struct.unpack(">ii", path.read_bytes()[32:40])
    assert 0 < slots_used < entries  # two keys may have one slot
    assert path.read_bytes()[440:460] == bytes(20)
    (found,) = rmqctl("query", root, "--topic", "T", "--key", "k", "--body", "utf8", "-o", "jsonl").rows()
    assert found["body"] == "y"


def test_a_body_that_no_client_can_decompress_is_not_stored(store: Path, append_lines: Append, rmqctl: Rmqctl) -> None:
    body = base64.b64encode(zstandard.compress(b"plain")).decode()
    bad = [
        f'{{"topic":"T","sysFlag":{flag},"body":"{body}","bodyEncoding":"base64"}}' for flag in (0x201, 0x101, 0x501)
    ]
    done = append_lines("\n".join([*bad, '{"topic":"T","body":"订单","bodyCharset":"gbk"}\n']))
    assert done.code == 4
    assert "no client can decompress the body: not lz4" in done.err
    assert "compression type 5 is unknown" in done.err
    stored = rmqctl("dump", store, "--topic", "T", "--body", "base64", "-o", "jsonl").rows()
    assert [base64.b64decode(row["body"]) for row in stored] == [zstandard.compress(b"plain"), "订单".encode("gbk")]


class Pipe(RawIOBase):
    """Gives one piece at each read, or as much of it as there is room for."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self.pieces:
            return 0
        piece = self.pieces.pop(0)
        taken = min(len(piece), len(buffer))
        buffer[:taken] = piece[:taken]
        if piece[taken:]:
            self.pieces.insert(0, piece[taken:])
        return taken


@PROPERTY
@given(st.lists(st.binary(max_size=40).map(lambda piece: piece.replace(b"\x00", b"\n")), max_size=12))
def test_blocks_are_whole_lines(pieces: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch, Interruption() as interruption:
        patch.setattr(append, "BLOCK_SIZE", 16)
        reader = BufferedReader(Pipe(pieces), 4)
        blocks = [bytes(block) for block in blocks_of_lines(reader, interruption)]
    assert b"".join(blocks) == b"".join(pieces)
    assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_lines_come_as_they_arrive() -> None:
    with Interruption() as interruption:
        found = blocks_of_lines(BufferedReader(Pipe([b"a\nb", b"\nc\n", b"d"])), interruption)
        assert [bytes(block) for block in found] == [b"a\n", b"b\nc\n", b"d"]
