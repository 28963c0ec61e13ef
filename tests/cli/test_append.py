"""append: what it takes, what it refuses, and what it says."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rmqctl.cli.main import run
from rmqctl.store.read_only_store import ReadOnlyStore
from tests.cli.conftest import Rmqctl
from tests.conftest import READABLE_NAMES, tree_hash, unpack

Golden = Callable[[str], Path]
SIZES = ("--commitlog-file-size", 65536, "--consumequeue-file-size", 1000, "--index-slots", 100, "--index-entries", 400)
LARGE = ("--commitlog-file-size", 262144, "--consumequeue-file-size", 6000, "--index-slots", 1000, "--index-entries", 4000)
GIVEN_ANEW = {"queueOffset", "physicalOffset", "size", "storeTimestamp", "storeTime", "msgId", "path", "tagsCode"}


def rows_of(rmqctl: Rmqctl, store: Path) -> list[dict[str, Any]]:
    return rmqctl("dump", store, "--body", "base64", "-o", "jsonl").rows()


def kept(row: dict[str, Any]) -> dict[str, Any]:
    """What a copy has in common with the original."""
    own = {key: value for key, value in row.items() if key not in GIVEN_ANEW}
    own["properties"] = {key: value for key, value in row["properties"].items() if key not in ("__CRC32#", "INNER_MULTI_QUEUE_OFFSET")}
    return own


@pytest.fixture
def store(tmp_path: Path, rmqctl: Rmqctl) -> Path:
    root = tmp_path / "store"
    assert rmqctl("append", root, "--create", "--profile", "4.9", *SIZES, "--topic", "OrderPaid", "--body", "first").code == 0
    return root


@pytest.mark.parametrize("name", [name for name in READABLE_NAMES if name != "471-cqext"])
def test_dump_and_append_copy_a_stores_messages(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    golden = unpack(name, tmp_path)
    lines = tmp_path / "lines"
    lines.write_text(rmqctl("dump", golden, "--body", "base64", "-o", "jsonl").out)
    copy = tmp_path / "copy"
    assert rmqctl("append", copy, "--create", "--profile", "5.3", *LARGE, "--from", lines).code == 0
    assert [kept(row) for row in rows_of(rmqctl, copy)] == [kept(row) for row in rows_of(rmqctl, golden)]
    assert rmqctl("verify", copy).code == 0


def test_from_stdin_and_in_batches(store: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(json.dumps({"topic": "T", "queueId": number // 10, "body": f"b{number}"}) + "\n" for number in range(40))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    result = rmqctl("append", store, "--from", "-", "--batch", 7, "-o", "jsonl")
    assert result.code == 0
    assert [(row["queueId"], row["queueOffset"]) for row in result.rows()] == [(number // 10, number % 10) for number in range(40)]
    bodies = [row["body"] for row in rmqctl("dump", store, "--topic", "T", "--body", "utf8", "-o", "jsonl").rows()]
    assert bodies == [f"b{number}" for number in range(40)]
    assert rmqctl("verify", store).code == 0


def test_lines_that_come_in_pieces(store: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            del size
            return super().read1(7)

    lines = (
        "".join(json.dumps({"topic": "T", "body": f"b{number}"}) + "\n" for number in range(40)) + "7\n\n" + '{"topic":"T","body":"last"}'
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Pipe(lines.encode())))
    result = rmqctl("append", store, "--from", "-", "-o", "json")
    assert (result.code, "line 41: not stored: " in result.err, "41 messages appended as 4.9 does, 1 refused" in result.err) == (
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
}


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_told_and_the_others_are_stored(bad: str, store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    lines = tmp_path / "lines"
    lines.write_text(f'{{"topic":"A","body":"1"}}\n{bad}\n{{"topic":"B","body":"2"}}\n')
    result = rmqctl("append", store, "--from", lines)
    assert result.code == 4
    assert "line 2: not stored: " in result.err
    assert [row["topic"] for row in rows_of(rmqctl, store)] == ["OrderPaid", "A", "B"]
    assert rmqctl("verify", store).code == 0
    assert not (tmp_path / "x").exists()


def test_stop_on_error(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"topic":"A"}\n{\n{"topic":"B"}\n')
    assert rmqctl("append", store, "--from", lines, "--stop-on-error").code == 4
    assert [row["topic"] for row in rows_of(rmqctl, store)] == ["OrderPaid", "A"]
    assert rmqctl("verify", store).code == 0


def test_one_message_with_everything(store: Path, rmqctl: Rmqctl) -> None:
    words = ("--tags", "paid", "--keys", "k1 k2", "--property", "a=b=c", "--queue", 3, "--transaction", "commit")
    result = rmqctl("append", store, "--topic", "T", "--body", "\u00e9", *words, "-o", "json", "--stats")
    assert result.document()["queues"] == [{"topic": "T", "queueId": 3, "firstOffset": 0, "nextOffset": 1}]
    assert "1 messages appended as 4.9 does in " in result.err
    schema = json.loads(files("rmqctl.cli").joinpath("schema", "append.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(result.document())
    stats = result.document()["stats"]
    assert (stats["putMessageTimesTotal"], stats["putMessageTopicTimesTotal"], stats["putMessageFailedTimes"]) == (1, {"T": 1}, 0)
    assert re.search(r"^putMessageTopicTimesTotal T +1$", result.err, re.MULTILINE)
    row = rmqctl("query", store, "--topic", "T", "--key", "k2", "--body", "utf8", "-o", "jsonl").rows()[0]
    assert (row["body"], row["sysFlag"], row["queueId"]) == ("\u00e9", 8, 3)
    assert {key: row["properties"][key] for key in ("TAGS", "KEYS", "a")} == {"TAGS": "paid", "KEYS": "k1 k2", "a": "b=c"}
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


@pytest.mark.parametrize(("name", "code"), [("497-crash", 1), ("broker-533-rocksdb", 13), ("326-basic", 13)])
def test_stores_that_may_not_be_appended_to(name: str, code: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack(name, tmp_path)
    before = tree_hash(root)
    result = rmqctl("append", root, "--topic", "T", "--body", "x")
    assert result.code == code
    assert len(result.err.splitlines()) == 1
    assert tree_hash(root) == before


def test_what_is_no_store_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("append", tmp_path / "none", "--topic", "T", "--body", "x").code == 10
    assert not (tmp_path / "none").exists()


def test_the_property_crc_covers_every_record(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = tmp_path / "crc"
    assert rmqctl("append", root, "--create", *SIZES, "--property-crc", "--topic", "T", "--body", "x", "--tags", "t").code == 0
    assert rmqctl("append", root, "--property-crc", "--topic", "T", "--body", "y").code == 0
    assert all("__CRC32#" in row["properties"] for row in rows_of(rmqctl, root))
    assert rmqctl("verify", root).code == 0
    assert ReadOnlyStore(root).path.version_signs() == []


def test_a_gap_in_the_log_needs_recovery(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("broker-497", tmp_path)
    (root / "commitlog" / f"{262144:020d}").unlink()
    before = tree_hash(root)
    result = rmqctl("append", root, "--topic", "T", "--body", "x")
    assert (result.code, "file-gap" in result.err) == (1, True)
    assert tree_hash(root) == before


def test_a_line_that_is_no_utf_8_is_told(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"\xff\xfe\n")
    result = rmqctl("append", store, "--from", lines)
    assert (result.code, "line 1: not stored: not UTF-8" in result.err) == (4, True)


def test_sigterm_ends_it_in_order(store: Path) -> None:
    command = [sys.executable, "-c", "from rmqctl.cli.main import main; main()", "append", str(store), "--from", "-", "-o", "jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"topic":"T","body":"x"}\n' * 2000)
        process.stdin.flush()
        time.sleep(3)
        process.terminate()
        process.wait(20)
    assert process.returncode == 130
    assert not (store / "abort").exists()
    assert run(["verify", str(store)]) == 0


def test_a_new_store_is_as_broker_conf_says(tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    folders = [tmp_path / "log a", tmp_path / "log b"]
    conf.write_text(
        f"storePathCommitLog={folders[0]},{folders[1]}\nmappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\n"
        "maxHashSlotNum=100\nmaxIndexNum=400\nenableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt=1000\nflushDiskType=SYNC_FLUSH\n"
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


def test_a_bad_broker_conf_is_told(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("maxMessageSize=4M\n")
    before = tree_hash(store)
    result = rmqctl("append", store, "--broker-conf", conf, "--topic", "T", "--body", "x")
    assert (result.code, "maxMessageSize='4M'" in result.err) == (2, True)
    assert tree_hash(store) == before


def test_sizes_that_are_not_the_stores_are_refused(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\n")
    before = tree_hash(store)
    result = rmqctl("append", store, "--broker-conf", conf, "--topic", "T", "--body", "x")
    assert (result.code, "file-length" in result.err) == (1, True)
    assert tree_hash(store) == before


def test_what_cannot_go_as_a_batch_goes_one_by_one(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"topic": "T", "body": "x" * (70000 if number == 3 else 10)}) + "\n" for number in range(8)))
    result = rmqctl("append", store, "--from", lines, "--batch", 4)
    assert result.code == 4
    assert "line 4: not stored: " in result.err
    assert "7 messages appended" in result.err


def test_an_interruption_ends_in_order_and_says_what_is_in(store: Path) -> None:
    """What was read is stored and told, whatever still comes."""
    command = [sys.executable, "-m", "rmqctl", "append", str(store), "--from", "-", "-o", "json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as appending:
        assert appending.stdin is not None
        appending.stdin.write('{"topic":"T"}\n{"topic":"T"}\n')
        appending.stdin.flush()
        while b"T" not in (store / "commitlog" / f"{0:020d}").read_bytes()[200:]:  # a trickle does not wait for more
            assert appending.poll() is None
            time.sleep(0.02)
        appending.send_signal(signal.SIGINT)
        out, err = appending.communicate(timeout=60)
    assert appending.returncode == 130
    assert json.loads(out)["queues"] == [{"topic": "T", "queueId": 0, "firstOffset": 0, "nextOffset": 2}]
    assert "2 messages appended" in err
    assert not (store / "abort").exists()


def test_more_queues_than_files_may_be_open(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"topic": f"T{number}", "queueId": number % 3}) + "\n" for number in range(400)))
    sizes = "--commitlog-file-size 65536 --consumequeue-file-size 1000 --index-slots 100 --index-entries 400"
    words = f"ulimit -n 256; exec {sys.executable} -m rmqctl append {tmp_path / 's'} --create {sizes} --from {lines}"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "400 messages appended" in done.stderr) == (0, True)


def test_a_new_store_of_5_is_gone_on_with_as_5(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("append", tmp_path / "s", "--create", *SIZES, "--topic", "T", "--body", "x").code == 0
    assert "1 messages appended as 5.3 does" in rmqctl("append", tmp_path / "s", "--topic", "T", "--body", "x").err
