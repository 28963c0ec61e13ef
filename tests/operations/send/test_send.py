"""`rmqctl send` into a cluster that breaks, refuses and lies."""

from __future__ import annotations

import base64
import hmac
import io
import json
import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqctl.operations.send import receipts as receipts_module
from rmqctl.operations.send import sender
from rmqctl.operations.send.outgoing import Outgoing
from rmqctl.operations.send.receipts import Receipts
from rmqctl.operations.send.route import Route
from rmqctl.remoting.access_key import parse_access_key
from rmqctl.remoting.address import Address
from rmqctl.remoting.frame import RemotingCommand
from tests.conftest import Rmqctl
from tests.support.batch_queues import golden
from tests.support.fake_cluster import DROP, DROP_STORED, FakeCluster, cluster_with

MESSAGES = 300
TOPICS = {"orders": 4, "audit": 1}
DELIVERY = {
    "DELAY": "3", "REAL_TOPIC": "x", "REAL_QID": "1", "TIMER_OUT_MS": "9", "TRAN_MSG": "true", "PGROUP": "p",
    "ORIGIN_MESSAGE_ID": "A", "MAX_RECONSUME_TIMES": "1", "1ST_POP_TIME": "1", "POP_CK": "1 2", "CLUSTER": "old",
    "ORIGIN_GROUP": "p", "MIN_OFFSET": "0", "MAX_OFFSET": "9", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG": "1", "WAIT": "false",
}  # fmt: skip
OWN = {"KEYS": "a b", "TAGS": "t", "UNIQ_KEY": "U1", "größe": "漢字", "REAL_TOPIC_OF_MINE": "y", "x": "DELAY\x01?"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "PAUSES", (0, 0))


def line(number: int, topic: str, properties: dict[str, str], **keys: Any) -> str:
    return json.dumps(
        {"topic": topic, "body": f"body {number}", "physicalOffset": number, "properties": properties} | keys
    )


@pytest.fixture
def store(tmp_path: Path, rmqctl: Rmqctl) -> Path:
    """A store with messages of two topics, some compressed, some larger than a batch may be."""
    lines = []
    for number in range(MESSAGES):
        body = (
            zlib.compress(b"%d " % number * 9)
            if number % 7 == 0
            else b"%d " % number + b"x" * (number % 50 == 1) * 40_000
        )
        keys = {
            "queueId": number % 3,
            "sysFlag": int(number % 7 == 0),
            "flag": number % 2,
            "body": body.hex(),
            "bodyEncoding": "hex",
        }
        lines.append(
            line(number, ("orders", "audit")[number % 5 == 0], {"UNIQ_KEY": str(number), "WAIT": "true"}, **keys)
        )
    (tmp_path / "lines").write_text("\n".join(lines))
    assert rmqctl("append", tmp_path / "store", "--create", "--from", tmp_path / "lines").code == 0
    return tmp_path / "store"


@pytest.mark.parametrize("seed", range(3))
def test_each_message_arrives_once_or_is_named(seed: int, store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    file, draw = tmp_path / "receipts", random.Random(seed)
    said = ("send", store, "--receipts", file, "--yes", "--batch", 8, "-o", "json", "--to")
    with cluster_with(TOPICS) as cluster:
        cluster.fault = lambda _: draw.choices((0, 2, 11, 14, DROP, DROP_STORED), (60, 6, 6, 3, 4, 4))[0]
        for _ in range(100):
            found = rmqctl(*said, f"127.0.0.1:1;{cluster.address}")
            assert found.document()["selected"] <= MESSAGES
            if found.code == 0 or found.document()["skipped"] + found.document()["sent"] == MESSAGES:
                break
        assert rmqctl(*said, cluster.address).code == 0
        last = rmqctl(*said, cluster.address).document()
    assert (last["selected"], last["skipped"], last["sent"]) == (MESSAGES, MESSAGES, 0)
    rows = [json.loads(text) for text in file.read_text().splitlines()]
    assert {"physicalOffset", "topic", "queueId", "queueOffset", "offsetMsgId"} <= rows[0].keys()
    number_at = {row["physicalOffset"]: int(cluster.arrived[row["queueOffset"]].properties["UNIQ_KEY"]) for row in rows}
    assert len(rows) == len(number_at) == MESSAGES
    arrived = Counter(int(one.properties["UNIQ_KEY"]) for one in cluster.arrived)
    assert set(arrived) == set(range(MESSAGES))
    named = {number_at[row["physicalOffset"]] for row in last["inDoubt"]}
    assert {number for number, times in arrived.items() if times > 1} <= named
    assert len(named) < MESSAGES
    assert not file.with_name("receipts.intent").exists()
    for number, one in {int(one.properties["UNIQ_KEY"]): one for one in cluster.arrived}.items():
        assert (one.flag, one.sys_flag) == (number % 2, number % 7 == 0)
        assert (zlib.decompress(one.body) if one.sys_flag else one.body).startswith(b"%d " % number)
    firsts: dict[tuple[str, int], list[int]] = {}
    for one in cluster.arrived:
        seen = firsts.setdefault((one.topic, one.queue_id), [])
        seen += [int(one.properties["UNIQ_KEY"])] * (int(one.properties["UNIQ_KEY"]) not in seen)
    assert all(numbers == sorted(numbers) for (topic, _), numbers in firsts.items() if topic == "orders")


def test_what_stays_goes_and_is_left_out(tmp_path: Path, rmqctl: Rmqctl) -> None:
    origin = OWN | {"RETRY_TOPIC": "orders"}
    lines = [
        line(1, "orders", OWN | DELIVERY),
        line(2, "%DLQ%g", {"DLQ_ORIGIN_TOPIC": "audit", "RETRY_TOPIC": "%RETRY%g"} | OWN),
        line(3, "%DLQ%h", origin),
        line(4, "%RETRY%g", origin),
        line(5, "%RETRY%g", OWN),
        line(6, "SCHEDULE_TOPIC_XXXX", OWN | {"REAL_TOPIC": "orders"}),
        *(line(7 + at, name, OWN) for at, name in enumerate(("rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC"))),
        line(10, "orders", OWN, sysFlag=12),
        line(11, "nowhere", OWN),
        *(line(12 + at, f"%RETRY%pop{sign}audit", OWN | {"ORIGIN_GROUP": "pop"}) for at, sign in enumerate("_+-")),
    ]
    (tmp_path / "lines").write_text("\n".join(lines))
    asked = ("append", tmp_path / "store", "--create", "--with-system-topics", "--from", tmp_path / "lines")
    assert rmqctl(*asked).code == 0

    def sent(*options: str, code: int = 0) -> tuple[dict[str, Any], FakeCluster]:
        receipts = tmp_path / f"receipts{options}".replace("/", "")
        with cluster_with(TOPICS | {"other": 2}) as cluster:
            said = ("send", tmp_path / "store", "--to", cluster.address, "--receipts", receipts, "-o", "json", *options)
            assert rmqctl(*said, "--dry-run").code == 1
            assert not receipts.exists()
            found = rmqctl(*said, "--yes")
            assert found.code == code
        return found.document(), cluster

    document, cluster = sent(code=4)
    assert [(one.topic, one.body, one.properties) for one in cluster.arrived] == [("orders", b"body 1", OWN)]
    assert (document["selected"], document["sent"], document["failed"]) == (2, 1, 1)
    assert document["failures"] == [{"topic": "nowhere", "why": "the cluster has no such topic", "messages": 1}]
    assert {row["why"]: row["messages"] for row in document["notSent"]} == {
        "dead letter": 2, "retry": 5, "delayed, half or POP's own": 2, "system topic": 1, "uncommitted transaction": 1,
    }  # fmt: skip
    for options, wanted in (
        (("--dead-letters",), ["audit 2", "orders 3"]),
        (("--dead-letters", "h"), ["orders 3"]),
        (("--retries",), ["audit 12", "audit 13", "orders 4"]),
        (
            ("--dead-letters", "g", "--retries", "--topic-to", "other"),
            [f"other {number}" for number in (12, 13, 14, 2, 4, 5)],
        ),
    ):
        _, cluster = sent(*options)
        assert sorted(f"{one.topic} {one.body.decode()[5:]}" for one in cluster.arrived) == wanted
        assert all(one.properties == OWN for one in cluster.arrived)
    _, cluster = sent("--topic", "orders", "--new-ids", "--rate", "1000")
    assert cluster.arrived[0].properties.pop("UNIQ_KEY") != "U1"
    assert cluster.arrived[0].properties == {name: text for name, text in OWN.items() if name != "UNIQ_KEY"}


def test_lines_of_dump_are_the_same_messages(
    store: Path, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "dumped"
    lines.write_text(rmqctl("dump", store, "--body", "base64", "-o", "jsonl").out + '{"topic":"orders"}\n')
    with cluster_with(TOPICS) as cluster:
        to = ("--to", cluster.address, "--receipts", tmp_path / "receipts", "--yes", "-o", "json")
        assert rmqctl("send", store, "--topic", "audit", *to).document()["sent"] == MESSAGES // 5
        with lines.open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            found = rmqctl("send", "-", *to)
    assert (found.code, found.document()["skipped"], found.document()["sent"]) == (
        4,
        MESSAGES // 5,
        MESSAGES - MESSAGES // 5,
    )
    assert f"line {MESSAGES + 1}: the line has no physicalOffset" in found.err
    assert len({one.properties["UNIQ_KEY"] for one in cluster.arrived}) == len(cluster.arrived) == MESSAGES


def test_one_message_that_a_broker_does_not_take_stops_no_other(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    with cluster_with(TOPICS) as cluster:
        cluster.fault = lambda request: 13 if b"52 " in request.body else 0
        to = ("--to", cluster.address, "--receipts", tmp_path / "receipts", "--yes", "-o", "json")
        found = rmqctl("send", store, *to)
        assert found.code == 4
        document = found.document()
        assert (document["sent"], document["failed"], document["inDoubt"]) == (
            MESSAGES - 2,
            2,
            [],
        )  # 52 and 152; 252 is compressed
        cluster.fault = lambda _: 0
        assert rmqctl("send", store, *to).document()["sent"] == 2


def test_a_broker_that_takes_nothing_ends_the_run(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    with cluster_with(TOPICS) as cluster:
        cluster.fault = lambda _: 14
        found = rmqctl("send", store, "--to", cluster.address, "--receipts", tmp_path / "receipts", "--yes")
        assert (found.code, found.err.count("\n")) == (4, 1)
        assert "refused request 320 with code 14: no at a stack trace" in found.err
        assert (tmp_path / "receipts").read_text() == ""
        cluster.fault, cluster.ids_left_out = lambda _: 0, 1
        found = rmqctl("send", store, "--to", cluster.address, "--receipts", tmp_path / "receipts", "--yes")
        assert found.code == 4
        assert "the answer has no place of the messages" in found.err
        assert "may arrive twice" in found.err
    assert rmqctl("send", store, "--to", cluster.address, "--receipts", tmp_path / "receipts", "--yes").code == 4


def test_a_dry_run_promises_no_more_than_would_come(
    store: Path, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = ("--to", "127.0.0.1:1", "--receipts", tmp_path / "receipts", "--dry-run")
    found = rmqctl("send", store, *to)
    assert (found.code, found.out.split("\n")[0]) == (4, f"{MESSAGES} messages would be sent")
    assert "127.0.0.1:1: cannot connect: Connection refused (check that a name server" in found.err
    assert "no file in config/ names the group 'g'" in (found := rmqctl("send", store, *to, "--dead-letters", "g")).err
    assert found.code == 2
    assert "topic 'Orders' has no queue" in rmqctl("send", store, *to, "--topic", "Orders").err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"garbage\n")))
    assert rmqctl("send", "-", *to).code == 4


def test_inner_batches_are_sent_unpacked(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = golden(tmp_path)
    with cluster_with({"bcq": 4, "bcq-single": 2}) as cluster:
        said = ("send", store, "--to", cluster.address, "--receipts", tmp_path / "receipts", "-o", "json", "--yes")
        document = rmqctl(*said, "--topic", "bcq", "--topic", "bcq-single").document()
    assert document["sent"] == len(cluster.arrived) == 812
    assert {one.sys_flag for one in cluster.arrived} == {0}
    assert not any("INNER_NUM" in one.properties or b"\0" in one.body for one in cluster.arrived)


def test_keep_queue_sends_nothing_if_a_queue_lacks(store: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    said = ("send", store, "--receipts", tmp_path / "receipts", "--keep-queue", "--yes", "-o", "json", "--to")
    with cluster_with(TOPICS) as cluster:
        found = rmqctl(*said, cluster.address)
        assert (found.code, cluster.arrived) == (4, [])
        assert {row["why"] for row in found.document()["failures"]} == {
            "no queue 1: the topic has 1",
            "no queue 2: the topic has 1",
        }
    with cluster_with(TOPICS | {"audit": 3}) as cluster:
        assert rmqctl(*said, cluster.address).code == 0
    assert all(one.queue_id == int(one.properties["UNIQ_KEY"]) % 3 for one in cluster.arrived)


def test_several_masters_take_turns() -> None:
    route = Route("orders", ((Address("a", 1), 2), (Address("b", 1), 3)))
    found = [(queue.broker.host, queue.queue_id) for queue in map(route.queue_of, range(6))]
    assert found == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 0)]


def outgoing(number: int) -> Outgoing:
    return Outgoing(number, f"{number:032X}", "orders", 0, 0, 1, b"")


def test_what_a_kill_leaves_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "receipts"
    killed = Receipts(path, only_read=False).__enter__()
    killed.begin(outgoing(number) for number in range(9))
    killed.mark(range(2))
    killed.add([{"msgId": outgoing(number).msg_id, "physicalOffset": number} for number in range(2)])
    killed.mark(range(2, 4))
    saved = (path.read_bytes(), path.with_name("receipts.intent").read_bytes())

    def in_doubt(receipts: bytes, intent: bytes) -> list[int]:
        path.write_bytes(receipts)
        path.with_name("receipts.intent").write_bytes(intent)
        with Receipts(path, only_read=True) as found:
            assert found.has(outgoing(0)) == receipts.startswith(saved[0])
            return [row["physicalOffset"] for row in found.in_doubt.values()]

    assert in_doubt(*saved) == [2, 3]
    assert in_doubt(saved[0] + b'{"msgId":"00', saved[1]) == [2, 3]
    assert in_doubt(saved[0], saved[1][:-9]) == []
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(receipts_module, "BOOT_ID", tmp_path / "boot")
    assert in_doubt(*saved) == [*range(2, 9)]
    assert in_doubt(b"", saved[1]) == [*range(9)]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"brokerDatas":7,"queueDatas":[]}', b"[" * 99_999, b"\xff"])
def test_a_route_that_is_none(
    body: bytes, store: Path, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeCluster, "_route", lambda *_: RemotingCommand(0, body=body))
    with cluster_with(TOPICS) as cluster:
        found = rmqctl("send", store, "--to", cluster.address, "--receipts", tmp_path / "receipts", "--yes")
    assert (found.code, found.err.count("\n")) == (4, 1)
    assert "cannot be read" in found.err


def test_a_signature_covers_the_sorted_values_and_the_body() -> None:
    key = parse_access_key("accessKey: me\nsecretKey = 'se:cret'\n")
    signed = key.signed({"b": "topic", "a": "group"}, b"body")
    digest = hmac.digest(b"se:cret", b"megrouptopicbody", "sha1")
    assert signed == {"AccessKey": "me", "a": "group", "b": "topic", "Signature": base64.b64encode(digest).decode()}
