"""dump: filters, ranges, the tail, a place's neighbourhood, bodies, and following a log as it grows."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from rmqctl.format.timestamp import rfc3339
from tests.conftest import Rmqctl, expected
from tests.support.file_edits import flip_bits, write_at
from tests.support.log_maker import Record, encode, sample_records, write_log

Golden = Callable[[str], Path]
MESSAGES = expected("broker-497")["messages"]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in rows]


@pytest.fixture
def store(golden: Golden) -> Path:
    return golden("broker-497")


def dump(rmqctl: Rmqctl, store: Path, *arguments: object) -> list[dict[str, Any]]:
    result = rmqctl("dump", store, "-o", "jsonl", *arguments)
    assert result.code == 0
    return result.rows()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--topic", "orders"), lambda m: m["topic"] == "orders"),
        (("--topic", "orders", "--topic", "events"), lambda m: m["topic"] in ("orders", "events")),
        (("--queue", "2"), lambda m: m["queueId"] == 2),
        (("--queue-offset", "3..5"), lambda m: 3 <= m["queueOffset"] <= 5),
        (("--queue-offset", "300.."), lambda m: m["queueOffset"] >= 300),
        (("--queue-offset", "..1", "--topic", "orders"), lambda m: m["topic"] == "orders" and m["queueOffset"] <= 1),
        (("--queue-offset", "7"), lambda m: m["queueOffset"] == 7),
        (("--tag", "TagA"), lambda m: m["properties"].get("TAGS") == "TagA"),
        (("--key", "c0"), lambda m: "c0" in m["properties"].get("KEYS", "").split(" ")),
        (
            ("--since", "1795253358049", "--until", "1795253358110"),
            lambda m: 1795253358049 <= m["storeTimestamp"] <= 1795253358110,
        ),
        (("--from-offset", "300000", "--to-offset", "400000"), lambda m: 300000 <= m["physicalOffset"] < 400000),
        (("--transaction", "commit"), lambda m: m["sysFlag"] & 12 == 8),
        (("--transaction", "prepared"), lambda m: m["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"),  # of 4.3 and later
        (("--transaction", "none"), lambda m: m["sysFlag"] & 12 == 0 and m["topic"] != "RMQ_SYS_TRANS_HALF_TOPIC"),
        (
            ("--transaction", "none", "--topic", "payments"),
            lambda m: m["sysFlag"] & 12 == 0 and m["topic"] == "payments",
        ),
    ],
)
def test_filters_keep_what_they_say(
    arguments: tuple[str, ...], wanted: Callable[[dict[str, Any]], bool], store: Path, rmqctl: Rmqctl
) -> None:
    assert set(offsets(dump(rmqctl, store, *arguments))) == {m["physicalOffset"] for m in MESSAGES if wanted(m)}


def test_a_topic_that_is_not_there_is_told_with_the_nearest_name(store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("dump", store, "--topic", "order", "--topic", "events", "-o", "jsonl")
    said = "topic 'order' has no queue in this store, and topics.json does not list it; the nearest name is 'orders'"
    assert (result.code, result.err.count("note: topic"), f"note: {said}\n" in result.err) == (0, 1, True)
    for words in (("queue", store, "order"), ("query", store, "--topic", "order", "--queue", 0, "--offset", 0)):
        assert said in rmqctl(*words).err


def test_seconds_are_told_from_milliseconds(store: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl("dump", store, "--since", "1795253358", "-o", "jsonl")
    assert set(offsets(result.rows())) == {
        m["physicalOffset"] for m in MESSAGES if m["storeTimestamp"] >= 1795253358000
    }
    assert "note: 1795253358 is read as seconds since 1970: 2026-11-21T09:29:18.000Z\n" in result.err


def test_a_time_outside_the_log_is_answered_with_the_times_in_it(store: Path, rmqctl: Rmqctl) -> None:
    times = sorted(m["storeTimestamp"] for m in MESSAGES)
    said = f"the first message of the log was stored at {rfc3339(times[0])}, the last at {rfc3339(times[-1])}\n"
    for option, time in (("--since", times[-1] + 1), ("--until", times[0] - 1)):
        assert rmqctl("dump", store, option, time).err.endswith(said)
    assert rmqctl("dump", store, "--since", times[-1] + 1, "--tail", 3).err.endswith(said)
    assert said not in rmqctl("dump", store, "--since", times[-1]).err
    assert said not in rmqctl("dump", store, "--since", times[0], "--queue", 77).err


def test_two_keys_in_one_are_answered_with_how_to_ask(store: Path, rmqctl: Rmqctl) -> None:
    for verb in ("dump", "query", "trace"):
        found = rmqctl(verb, store, "--key", "o1477 c1")
        assert (found.code, found.err.endswith("give one key, such as --key o1477\n")) == (2, True)


def test_limit_tail_and_ranges(store: Path, rmqctl: Rmqctl) -> None:
    everything = offsets(dump(rmqctl, store))
    assert offsets(dump(rmqctl, store, "--limit", 7)) == everything[:7]
    assert rmqctl("dump", store, "--limit", 7).err.endswith(": --limit\n")
    assert offsets(dump(rmqctl, store, "--limit", 0)) == []
    assert offsets(dump(rmqctl, store, "--tail", 7)) == everything[-7:]
    assert offsets(dump(rmqctl, store, "--tail", 100000)) == everything
    assert (
        offsets(dump(rmqctl, store, "--tail", 3, "--topic", "events"))
        == [row for row in everything if row in {m["physicalOffset"] for m in MESSAGES if m["topic"] == "events"}][-3:]
    )


def test_from_offset_inside_a_record_begins_with_the_next(store: Path, rmqctl: Rmqctl) -> None:
    everything = offsets(dump(rmqctl, store))
    assert offsets(dump(rmqctl, store, "--from-offset", everything[10] + 1))[0] == everything[11]


def test_the_scan_says_how_it_ended(store: Path, rmqctl: Rmqctl) -> None:
    assert "ok up to 832035; stopped at 832035: end of the log" in rmqctl("dump", store, "-o", "jsonl").err


def test_around_shows_the_damaged_record_between_its_neighbours(store: Path, rmqctl: Rmqctl) -> None:
    everything = dump(rmqctl, store)
    victim = everything[100]
    path = store / victim["path"]
    flip_bits(path, victim["physicalOffset"] + 88, 4)  # the first byte of its body
    rows = rmqctl("dump", store, "--around", victim["physicalOffset"] + 50, "--context", 1, "-o", "jsonl").rows()
    assert offsets(rows) == offsets(everything[99:102])
    assert [row.get("damage") for row in rows] == [None, "bad-body-crc", None]
    assert rows[1]["msgId"] == victim["msgId"]


def test_a_query_says_nothing_of_an_index_that_has_every_message(store: Path, rmqctl: Rmqctl) -> None:
    key = next(
        row["properties"]["KEYS"] for row in rmqctl("dump", store, "-o", "jsonl").rows() if "KEYS" in row["properties"]
    ).split()[0]
    for number in range(3):
        assert rmqctl("append", store, "--topic", "OrderPaid", "--keys", key, "--body", number).code == 0
    result = rmqctl("query", store, "--topic", "OrderPaid", "--key", key, "-o", "jsonl")
    assert len(result.rows()) >= 3
    assert result.err == ""


def test_headings_of_queues_are_as_those_of_other_tables(store: Path, rmqctl: Rmqctl) -> None:
    row = rmqctl("dump", store, "-o", "jsonl", "--limit", 1).rows()[0]
    for words in ([], [row["topic"]], [row["topic"], row["queueId"]]):
        heading = rmqctl("queue", store, *words).out.splitlines()[0]
        assert heading == heading.upper()
        assert {"OFFSET", "PHYSICALOFFSET"} <= set(heading.split()) or {"QUEUE", "MIN", "MAX"} <= set(heading.split())
    assert rmqctl("queue", store, "-o", "csv").out.startswith("topic,queueId,minOffset,maxOffset")


def test_around_an_offset_in_no_file(store: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("dump", store, "--around", 10**15).code == 2


def test_damage_is_said_on_stderr_and_damaged_rows_come_when_asked(store: Path, rmqctl: Rmqctl) -> None:
    path = store / "commitlog" / f"{0:020d}"
    path.write_bytes(bytes([1]) * 100 + path.read_bytes()[100:])
    result = rmqctl("dump", store, "-o", "jsonl")
    assert result.code == 1
    assert "damage: bad-magic at 0, 212 bytes" in result.err
    assert len(result.rows()) == 2078
    rows = rmqctl("dump", store, "-o", "jsonl", "--damaged").rows()
    assert rows[0]["damage"] == "bad-magic"
    assert len(rows) == 2079


def test_bodies_in_every_encoding(tmp_path: Path, rmqctl: Rmqctl) -> None:
    plain = "déjà vu\x1b".encode()
    records = [
        Record(body=plain),
        Record(body=zlib.compress(plain), sys_flag=1),
        Record(body=b"not zlib", sys_flag=1),
        Record(body=b"\xff"),
    ]
    write_log(tmp_path, records, file_size=4096)
    for encoding, decode in (("hex", bytes.fromhex), ("base64", base64.b64decode)):
        rows = dump(rmqctl, tmp_path, "--body", encoding)
        assert [decode(row["body"]) for row in rows] == [record.body for record in records]
        assert {row["bodyEncoding"] for row in rows} == {encoding}
    texts = [row["body"] for row in dump(rmqctl, tmp_path, "--body", "utf8")]
    assert texts == [plain.decode(), plain.decode(), "not zlib", "\ufffd"]
    assert "body" not in dump(rmqctl, tmp_path)[0]
    assert len(dump(rmqctl, tmp_path, "--body-match", "déjà.*")) == 2


def test_a_zip_bomb_is_shown_as_stored(tmp_path: Path, rmqctl: Rmqctl) -> None:
    bomb = zlib.compress(bytes(65 * 1024 * 1024), 9)
    write_log(tmp_path, [Record(body=bomb, sys_flag=1)], file_size=len(bomb) + 4096)
    assert len(dump(rmqctl, tmp_path, "--body", "utf8")[0]["body"]) <= len(bomb)


def test_bad_conditions_are_usage(store: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("dump", store, "--body-match", "(").code == 2
    for words in ("--tail 3", "--follow", "--queue 0", "--from-offset 0", "--topic T", "--group g --unconsumed"):
        assert rmqctl("dump", store, "--around", 5, *words.split()).code == 2
    assert rmqctl("dump", store, "--transaction", "maybe").code == 2
    for words in ("--queue-offset 3..1", "--queue-offset ..", "--queue-offset 1...2", "--queue-offset -1"):
        assert rmqctl("dump", store, *words.split()).code == 2
    for words in ("--unconsumed", "--group billing", "--group billing --unconsumed --follow", "--group b --unconsumed"):
        assert rmqctl("dump", store, *words.split()).code == 2


def follow(store: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-u",
        "-m",
        "rmqctl",
        "dump",
        str(store),
        "--follow",
        "-o",
        "jsonl",
        "--body",
        "hex",
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_follow_shows_a_table_row_at_once(tmp_path: Path) -> None:
    write_log(tmp_path, sample_records(2), file_size=4096)
    command = [sys.executable, "-m", "rmqctl", "dump", str(tmp_path), "--follow", "--from-offset", "0", "--limit", "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    assert lines[0].startswith("PHYSICALOFFSET")
    assert lines[2].startswith("0 ")
    process.terminate()
    process.communicate()


@pytest.mark.parametrize("arguments", [(), ("--tail", "1"), ("--from-offset", "0")])
def test_an_interrupted_follow_says_where_it_stopped(
    arguments: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_log(tmp_path, sample_records(3), file_size=4096)
    end = len(data.rstrip(b"\0"))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rmqctl.forensics.follow.time.sleep", interrupt)
    result = rmqctl("dump", tmp_path, "--follow", *arguments)
    assert result.code == 130
    assert f"ok up to {end}; stopped at {end}: Ctrl-C" in result.err


def test_the_end_that_was_asked_for_is_named(store: Path, rmqctl: Rmqctl) -> None:
    err = rmqctl("dump", store, "--from-offset", "0", "--to-offset", "300", "-o", "jsonl").err
    assert "no record from offset 300 on is wanted" in err


def test_follow_passes_damage_and_says_so(tmp_path: Path) -> None:
    records = sample_records(3)
    data = bytearray(write_log(tmp_path, records, file_size=4096))
    data[0:8] = b"\xff" * 8
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data)
    process = follow(tmp_path, "--from-offset", "0", "--limit", "2")
    out, errors = process.communicate()
    assert len(out.splitlines()) == 2
    assert "damage: bad-magic at 0" in errors
    assert process.returncode == 1


def read_offset(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(json.loads(process.stdout.readline())["physicalOffset"])


def test_follow_prints_new_records_over_a_roll_of_files(tmp_path: Path) -> None:
    records = sample_records(6)
    first = write_log(tmp_path, records[:3], file_size=1024)
    process = follow(tmp_path, "--tail", "1", "--limit", "4")
    last_start = len(encode(records[0], 0)) + len(encode(records[1], 0))
    assert read_offset(process) == last_start  # from here on it follows
    path = tmp_path / "commitlog" / f"{0:020d}"
    at = len(first.rstrip(b"\0"))
    at = last_start + len(encode(records[2], last_start))
    fourth = encode(records[3], at)
    write_at(path, at, fourth)
    assert read_offset(process) == at
    at += len(fourth)
    write_at(path, at, (1024 - at).to_bytes(4, "big") + bytes.fromhex("CBD43194"))
    fifth = encode(records[4], 1024)
    sixth = encode(records[5], 1024 + len(fifth))
    (tmp_path / "commitlog" / f"{1024:020d}").write_bytes((fifth + sixth).ljust(1024, b"\0"))
    assert read_offset(process) == 1024
    assert read_offset(process) == 1024 + len(fifth)
    process.communicate()
    assert process.returncode == 0


def test_follow_never_prints_a_torn_record(tmp_path: Path) -> None:
    """A writer that writes each record in two parts, cut elsewhere each time; what comes out is always the whole
    record.
    """
    records = [Record(queue_offset=i, body=b"body-%d" % i, properties=b"KEYS\x01key-%d" % i) for i in range(40)]
    write_log(tmp_path, records[:1], file_size=16384)
    process = follow(tmp_path, "--tail", "1", "--limit", str(len(records)))
    at = 0
    assert read_offset(process) == at
    at += len(encode(records[0], 0))
    descriptor = os.open(tmp_path / "commitlog" / f"{0:020d}", os.O_RDWR)
    assert process.stdout is not None
    starts = []
    for i, record in enumerate(records[1:], 1):
        data = encode(record, at)
        torn = len(data) * i // len(records)
        os.pwrite(descriptor, data[:torn], at)
        os.pwrite(descriptor, data[torn:], at + torn)
        starts.append(at)
        at += len(data)
    rows = list(process.stdout)
    os.close(descriptor)
    process.communicate()
    got = [json.loads(row) for row in rows]
    assert offsets(got) == starts
    assert [bytes.fromhex(row["body"]) for row in got] == [record.body for record in records[1:]]
    assert [row["properties"] for row in got] == [{"KEYS": f"key-{i}"} for i in range(1, len(records))]


@pytest.mark.parametrize("part", [4, 30, 90, 95, 105, 108, 112])
def test_a_half_written_record_is_not_a_row_yet(part: int, tmp_path: Path) -> None:
    """Whatever part of the last record is there, the poll's decision is the same: not yet."""
    from rmqctl.forensics.follow import LogFollower
    from rmqctl.format.message import Message
    from rmqctl.store.read.read_only_store import ReadOnlyStore

    records = sample_records(2)
    data = encode(records[0], 0)
    second = encode(Record(body=b"12345", properties=b"KEYS\x01abc"), len(data))
    assert len(second) > part
    write_log(tmp_path, records[:1], file_size=4096)
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes((data + second[:part]).ljust(4096, b"\0"))
    follower = LogFollower(ReadOnlyStore(tmp_path).commit_log, len(data), print).items(None)
    polls = 0

    def poll(_: float) -> None:
        nonlocal polls
        polls += 1
        if polls == 4:  # it looked several times and printed nothing: now the writer goes on
            path.write_bytes((data + second).ljust(4096, b"\0"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmqctl.forensics.follow.time.sleep", poll)
        found = next(follower)
    assert polls > 4
    assert isinstance(found, Message)
    assert found.physical_offset == len(data)
    assert found.properties == {"KEYS": "abc"}


def test_compressed_bodies_are_matched_and_shown(tmp_path: Path, rmqctl: Rmqctl) -> None:
    text = b"the order " * 30
    kinds = {0x301: zlib.compress(text), 0x101: lz4.frame.compress(text), 0x201: zstandard.compress(text)}
    unknown = Record(sys_flag=0x501, body=b"\x01\x02the order")
    write_log(tmp_path, [*(Record(sys_flag=flag, body=body) for flag, body in kinds.items()), unknown])
    found = rmqctl("dump", tmp_path, "--body-match", "the order the", "--body", "utf8", "-o", "jsonl")
    assert [row["body"] for row in found.rows()] == [text.decode()] * 3
    assert "1 body could not be decompressed" in found.err
    assert "compression type 5 is unknown" in found.err
    assert "3 of 4 messages matched" in found.err.splitlines()[-1]
    last = rmqctl("query", tmp_path, "--topic", "OrderPaid", "--key", "k1", "--scan", "--body", "utf8", "-o", "jsonl")
    assert [row.get("bodyError") for row in last.rows()][:3] == [None] * 3
    assert last.rows()[3]["bodyError"] == "compression type 5 is unknown (SYSFLAG 1281, bits 8 to 10)"
    assert "compression type 5" in rmqctl("dump", tmp_path, "--body", "utf8").out


def test_a_charset_is_for_the_text_and_for_the_match(tmp_path: Path, rmqctl: Rmqctl) -> None:
    write_log(
        tmp_path,
        [Record(body="订单已付款".encode("gbk")), Record(body=zlib.compress("订单".encode("gbk")), sys_flag=1)],
    )
    shown = rmqctl("dump", tmp_path, "--charset", "GBK", "-o", "jsonl").rows()
    assert [(row["body"], row["bodyEncoding"], row["bodyCharset"]) for row in shown] == [
        ("订单已付款", "utf8", "gbk"),
        ("订单", "utf8", "gbk"),
    ]
    assert len(rmqctl("dump", tmp_path, "--charset", "gbk", "--body-match", "^订.$", "-o", "jsonl").rows()) == 1
    assert not rmqctl("dump", tmp_path, "--body-match", "订单", "-o", "jsonl").rows()
    traced = rmqctl("trace", tmp_path, "--key", "k1", "--charset", "gbk", "-o", "json").document()
    assert [stage["body"] for stage in traced["stages"]][:1] == ["订单已付款"]
    for name in ("klingon", "hex", "rot13"):
        refused = rmqctl("dump", tmp_path, "--charset", name)
        assert refused.code == 2
        assert "is no charset" in refused.err


def test_a_producer_s_host(store: Path, rmqctl: Rmqctl) -> None:
    hosts = {message["bornHost"] for message in MESSAGES}
    for host in sorted(hosts)[:2]:
        assert offsets(dump(rmqctl, store, "--host", host)) == sorted(
            message["physicalOffset"] for message in MESSAGES if message["bornHost"] == host
        )
    assert len(dump(rmqctl, store, "--host", "127.0.0.1")) == len(MESSAGES)
    assert not dump(rmqctl, store, "--host", "[::1]:5")
    assert rmqctl("dump", store, "--host", "broker-a").code == 2
