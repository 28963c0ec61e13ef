"""`rmqctl trace`: what its JSON says of real brokers' messages, and its tables."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.forensics.message_filter import Filter
from rmqctl.forensics.trace import links, stage
from rmqctl.forensics.trace.log_scan import LogScan
from rmqctl.forensics.trace.op_messages import OpMessages
from rmqctl.forensics.trace.trace import Question, Trace
from rmqctl.format.body import client_trace, op_message
from rmqctl.format.index_entry import key_hash
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, expected, tree_hash, unpack
from tests.support.file_edits import write_at
from tests.support.log_maker import Record, encode, write_log

Golden = Callable[[str], Path]


SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def kinds(rmqctl: Rmqctl, store: Path, *asked: str) -> list[tuple[str, int]]:
    found = rmqctl("trace", store, *asked, "-o", "json")
    assert found.code == 0
    return [(row["kind"], row["physicalOffset"]) for row in found.document()["stages"]]


@pytest.mark.parametrize("way", [(), ("--scan",)])
@pytest.mark.parametrize(
    ("key", "stages", "verdict"),
    [
        ("o1", ["stored"], "stored, consumed by billing"),
        ("o3", ["delayed", "delivered"], "delayed by level 1, delivered after 1.1 s, consumed by billing"),
        ("tx11", ["half", "commit", "op"], "committed after 16 ms, no group has an offset in its queue"),
        (
            "tx61",
            ["half", "half", "commit", "op"],
            "committed after 3.6 s and 1 check, no group has an offset in its queue",
        ),
        (
            "poison-7",
            ["stored", "delayed", "retry", "dead-letter"],
            "stored, failed twice at billing, now in %DLQ%billing",
        ),
    ],
)
def test_lives(way: tuple[str, ...], key: str, stages: list[str], verdict: str, golden: Golden, rmqctl: Rmqctl) -> None:
    found = rmqctl("trace", golden("broker-497"), "--key", key, *way, "-o", "json")
    document = found.document()
    assert (found.code, document["found"], document["verdict"]) == (0, True, verdict)
    assert [row["kind"] for row in document["stages"]] == stages
    assert all(row["reachable"] and row["damage"] is None for row in document["stages"])


def test_pop(golden: Golden, rmqctl: Rmqctl) -> None:
    found = rmqctl("trace", golden("broker-550"), "--key", "pop19", "-o", "json").document()
    assert found["verdict"].startswith(
        "stored, retried once in %RETRY%popgroup_popt, popped and acknowledged by popgroup"
    )
    stages = [row["kind"] for row in found["stages"]]
    assert {kind: stages.count(kind) for kind in set(stages)} == {
        "stored": 1,
        "timer": 5,
        "pop-checkpoint": 3,
        "pop-ack": 2,
        "retry": 1,
    }
    states = {(row["group"], row["topic"], row["queueOffset"]): row["state"] for row in found["groups"]}
    assert states["popgroup", "popt", 5] == states["popgroup", "%RETRY%popgroup_popt", 0] == "consumed"


def test_a_retry_that_waits(golden: Golden, rmqctl: Rmqctl) -> None:
    """The group is past the message in its topic, but it has consumed nothing in its %RETRY% topic."""
    found = rmqctl("trace", golden("broker-550"), "--key", "poison-7", "-o", "json").document()
    assert found["verdict"] == "stored, waits for retry 1 in %RETRY%billing"
    assert [row["state"] for row in found["groups"]] == ["consumed", "unknown"]


def test_every_way_leads_to_the_same_life(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    stages = kinds(rmqctl, store, "--key", "poison-7")
    row = rmqctl("trace", store, "--key", "poison-7", "-o", "json").document()["stages"][2]
    assert kinds(rmqctl, store, "--unique-key", row["uniqueKey"]) == stages
    assert kinds(rmqctl, store, "--msg-id", row["msgId"]) == stages
    assert kinds(rmqctl, store, "--id", row["uniqueKey"]) == kinds(rmqctl, store, "--id", row["msgId"]) == stages
    assert kinds(rmqctl, store, "--offset", str(row["physicalOffset"])) == stages
    assert kinds(rmqctl, store, "--key", "poison-7", "--topic", "orders") == stages
    assert rmqctl("trace", store, "--key", "poison-7", "--topic", "payments").code == 1


def test_nothing_found(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    before = tree_hash(store)
    found = rmqctl("trace", store, "--unique-key", "nonsense", "-o", "json")
    document = found.document()
    assert (found.code, document["found"], document["stages"]) == (1, False, [])
    assert document["verdict"].startswith("no record of the message was found; all of the log [0, ")
    assert document["verdict"].endswith("nothing is damaged there")
    shown = rmqctl("trace", store, "--unique-key", "nonsense")
    assert (shown.code, shown.out.splitlines()[0]) == (1, document["verdict"])
    assert tree_hash(store) == before


def test_another_topic_has_the_key(golden: Golden, rmqctl: Rmqctl) -> None:
    found = rmqctl("trace", golden("broker-497"), "--key", "o1", "--topic", "payments")
    assert found.code == 1
    assert found.out.splitlines()[0] == "no record of the message is in topic payments; it is in orders"


def test_nothing_at_an_offset(golden: Golden, rmqctl: Rmqctl) -> None:
    """An offset inside a record, and one in a missing file; the index is not asked."""
    store = golden("broker-497")
    inside = rmqctl("trace", store, "--offset", "2185")
    assert inside.out == "offset 2185 is inside the record at 2180, which ends at 2513: ask for 2180\n"
    (store / "commitlog" / f"{262144:020}").unlink()
    missing = rmqctl("trace", store, "--offset", "300000")
    where = "the file with offset 300000 is missing; the log goes on at 524288"
    assert missing.out == f"not in this log: {where}\n"
    verdict = rmqctl("trace", store, "--unique-key", "nonsense").out.splitlines()[0]
    assert "the readable part of the log [0, " in verdict


def test_nothing_in_several_stores(tmp_path: Path, rmqctl: Rmqctl) -> None:
    stores = [store_with_client_records(tmp_path / name) for name in ("one", "other")]
    verdict = rmqctl("trace", *stores, "--key", "nonsense", "-o", "json").document()["verdict"]
    assert all(f"; {store}: all of the log [0, " in verdict for store in stores)


def test_nothing_but_placeholders(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    row = rmqctl("trace", store, "--key", "o1", "-o", "json").document()["stages"][0]
    write_at(store / "commitlog" / f"{0:020}", row["physicalOffset"], bytes(88))
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    found = rmqctl("trace", store, "--key", "o1", "-o", "json").document()
    told = f"the log has 1 placeholder at offset {row['physicalOffset']}: the message may have been one of these"
    assert found["verdict"].endswith(told)


def test_the_log_begins_later(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    key = rmqctl("trace", store, "--key", "o1", "-o", "json").document()["stages"][0]
    (store / "commitlog" / f"{0:020}").unlink()
    for asked in (("--unique-key", key["uniqueKey"]), ("--msg-id", key["msgId"])):
        found = rmqctl("trace", store, *asked, "-o", "json")
        assert found.code == 1
        verdict = found.document()["verdict"]
        assert verdict.startswith("not in this log: it begins at")
        assert "which is later" in verdict


def test_several_stores_are_one_cluster(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """A copy of a store has the same records: each is shown once."""
    one, other = (unpack(name, tmp_path / name) for name in ("broker-497", "broker-533"))
    found = rmqctl("trace", one, other, one, "--key", "o3", "-o", "json").document()
    assert found["stores"] == [str(one), str(other), str(one)]
    assert [row["store"] for row in found["stages"]] == [str(one)] * 2 + [str(other)] * 2
    assert found["verdict"].startswith("2 messages: (1) delayed by level 1")


def test_replicas_of_which_one_is_damaged(tmp_path: Path, rmqctl: Rmqctl) -> None:
    one, other = (store_with_client_records(tmp_path / name) for name in ("one", "other"))
    write_at(one / "commitlog" / f"{0:020}", 90, b"!")
    for stores, second in (((one, other), one), ((other, one), other)):
        found = rmqctl("trace", *stores, "--unique-key", "U1", "-o", "json").document()
        assert found["remarks"] == [f"the copy of the record at offset 0 in {one} is bad-body-crc"]
        stages = [(row["store"], row["queueOffset"], row["damage"]) for row in found["stages"]]
        assert sorted(stages, key=lambda row: row[1]) == [(str(other), 0, None), (str(second), 1, None)]


def test_replicas_without_a_unique_key_are_shown_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    stores = [tmp_path / name for name in ("one", "replica", "other-cluster")]
    for store, timestamp in zip(stores, (1, 1, 2), strict=True):
        write_log(store, [Record(properties=b"KEYS\x01k\x02", store_timestamp=timestamp)], file_size=65536)
    found = rmqctl("trace", *stores, "--key", "k", "-o", "json").document()
    assert [row["store"] for row in found["stages"]] == [str(stores[0]), str(stores[2])]


def with_half_messages(root: Path, count: int, ops: int) -> Path:
    """Half messages with one key, a rollback of the first `ops` of them, and a log without queues."""
    halves = [
        Record(
            topic="RMQ_SYS_TRANS_HALF_TOPIC",
            queue_id=0,
            queue_offset=at,
            properties=f"KEYS\x01k\x02UNIQ_KEY\x01U{at}\x02".encode(),
        )
        for at in range(count)
    ]
    body = ",".join(map(str, range(ops))).encode()
    rollbacks = [
        Record(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", queue_id=0, queue_offset=0, properties=b"TAGS\x01d\x02", body=body)
    ]
    write_log(root, [*halves, *rollbacks], file_size=65536)
    return root


def test_open_half_messages_of_one_key_need_one_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rmqctl: Rmqctl
) -> None:
    store = with_half_messages(tmp_path, count=30, ops=10)
    scans: list[Filter] = []
    records = LogScan.records

    def counted(self: LogScan, wanted: Filter, *at: int | None) -> Iterator[stage.Record]:
        scans.append(wanted)
        return records(self, wanted, *at)

    monkeypatch.setattr(LogScan, "records", counted)
    found = rmqctl("trace", store, "--key", "k", "-o", "json").document()
    assert [row["kind"] for row in found["stages"]].count("half") == 30
    assert [row["kind"] for row in found["stages"]].count("rollback") == 10
    assert len([one for one in scans if one.topics == {"RMQ_SYS_TRANS_OP_HALF_TOPIC"}]) == 1


def test_op_messages_of_many_messages_are_those_of_each(golden: Golden, rmqctl: Rmqctl) -> None:
    """They are read from the queue once; a single message reads only those that may name it."""
    store = ReadOnlyStore(golden("broker-533"))
    every = [row for row in expected("broker-533")["messages"] if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"]
    scan = LogScan(store, 0, threads=1, warm_up=lambda: None)
    together = OpMessages(scan)
    for row in every:
        asked = (0, [row["queueOffset"]], row["physicalOffset"])
        alone = [one for one in OpMessages(scan).in_queue(*asked) if row["queueOffset"] in named(one)]
        assert [one.place for one in together.in_queue(*asked) if row["queueOffset"] in named(one)] == [
            one.place for one in alone
        ]
    assert len(every) > 50


def named(record: stage.Record) -> list[int]:
    return op_message.decode(bytes(record.message.body)).half_offsets


def test_messages_of_one_key_have_a_limit(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = with_half_messages(tmp_path, count=7, ops=0)
    found = rmqctl("trace", store, "--key", "k", "--limit", "3", "-o", "json")
    document = found.document()
    assert (found.code, len(document["stages"]), document["leftOut"]) == (0, 3, 4)
    assert document["remarks"] == [
        "4 more messages with this key left out: --limit shows more; --topic or --unique-key selects"
    ]
    assert document["remarks"][0] in rmqctl("trace", store, "--key", "k", "--limit", "3").out
    assert rmqctl("trace", store, "--key", "k", "--limit", "7", "-o", "json").document()["leftOut"] == 0


def test_a_rollback_that_may_be_a_lost_commit(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    stages = rmqctl("trace", store, "--key", "tx11", "-o", "json").document()["stages"]
    commit = next(row for row in stages if row["kind"] == "commit")
    write_at(store / "commitlog" / f"{0:020}", commit["physicalOffset"], b"\xff" * commit["size"])
    for way in ((), ("--scan",)):
        found = rmqctl("trace", store, "--key", "tx11", *way, "-o", "json").document()
        assert "rollback" in [row["kind"] for row in found["stages"]]
        assert ", or its commit is lost" in found["verdict"]
    shown = rmqctl("trace", store, "--key", "tx11", "--scan").out
    assert f"\ndamage: bad-magic at {commit['physicalOffset']}: " in shown


def test_tables_and_diagram(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    shown = rmqctl("trace", store, "--key", "poison-7").out.splitlines()
    assert shown[0] == "stored, failed twice at billing, now in %DLQ%billing"
    assert any(line.split()[:4] == ["dead-letter", "+4.2", "s", "2026-11-21T09:29:20.753Z"] for line in shown)
    assert any(line.split() == ["billing", "consumed", "orders", "2", "1", "376"] for line in shown)
    diagram = rmqctl("trace", store, "--key", "poison-7", "--mermaid").out.splitlines()
    assert diagram[0] == "sequenceDiagram"
    assert "    p1->>p2: stored (queue 2, offset 1)" in diagram


def test_a_diagram_shows_names_as_text(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Mermaid 11 shows this diagram with the names as they are; it runs, draws or drops nothing of them."""
    name = "<b onclick='x()'>a;\nend %%{init: {}}%% #35;"
    write_log(tmp_path, [Record(topic=name, properties=b"KEYS\x01k\x02")], file_size=4096)
    lines = rmqctl("trace", tmp_path, "--key", "k", "--mermaid").out.splitlines()
    assert lines[0] == "sequenceDiagram"
    coded = "#60;b onclick#61;#39;x()#39;#62;a#59;#92;x0aend #37;#37;#123;init#58; #123;#125;#125;#37;#37; #35;35#59;"
    assert f"    participant p2 as {coded}" in lines
    own = {"participant", "->>", "-->>", "%%", ": "}
    text = "\n".join(lines)
    for word in own:
        text = text.replace(word, " ")
    assert re.fullmatch(r"(?:[\w ,./()\n-]|#\d+;)*", text)


@pytest.mark.parametrize(
    "asked", [(), ("--key", "a", "--offset", "1"), ("--msg-id", "x"), ("--key", ""), ("--key", "a", "--key", "b")]
)
def test_wrong_usage(asked: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
    assert rmqctl("trace", golden("broker-497"), *asked).code == 2


POISON = [("stored", 2180), ("delayed", 3600), ("retry", 799927), ("dead-letter", 800394)]


def test_without_an_index(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    shutil.rmtree(store / "index")
    found = rmqctl("trace", store, "--key", "poison-7", "-o", "json").document()
    assert [(row["kind"], row["physicalOffset"], row["indexed"]) for row in found["stages"]] == [
        (*stage, None) for stage in POISON
    ]
    assert not found["searched"][0]["byIndex"]


@pytest.mark.parametrize("number", [0, 1, -1])
def test_an_index_file_is_missing(number: int, golden: Golden, rmqctl: Rmqctl) -> None:
    """What no index file covers is read."""
    store = golden("broker-497")
    sorted((store / "index").iterdir())[number].unlink()
    assert kinds(rmqctl, store, "--key", "poison-7") == POISON
    assert kinds(rmqctl, store, "--key", "tx1486") == kinds(rmqctl, store, "--key", "tx1486", "--scan")


def test_a_log_file_is_missing_after_the_index(golden: Golden, rmqctl: Rmqctl) -> None:
    """What comes after the missing file is read."""
    store = golden("broker-497")
    sorted((store / "index").iterdir())[1].unlink()
    (store / "commitlog" / f"{524288:020}").unlink()
    found = kinds(rmqctl, store, "--key", "tx61")
    assert found == kinds(rmqctl, store, "--key", "tx61", "--scan")
    assert ("commit", 798267) in found


def lose_slot(store: Path, topic: str, key: str) -> None:
    for file in (store / "index").iterdir():
        data = bytearray(file.read_bytes())
        slot = 40 + key_hash(topic, key) % 1000 * 4
        data[slot : slot + 4] = bytes(4)
        file.write_bytes(data)


@pytest.mark.parametrize(
    ("asked", "topic", "lost"),
    [
        ("poison-7", "orders", "stored"),  # the dead letter names it
        ("o3", "orders", "delivered"),  # the delayed message is overdue
        ("tx61", "RMQ_SYS_TRANS_HALF_TOPIC", "half"),  # the commit names it
    ],
)
def test_an_index_that_has_lost_a_slot(asked: str, topic: str, lost: str, golden: Golden, rmqctl: Rmqctl) -> None:
    """A link shows that a record is missing: the log is read."""
    store = golden("broker-497")
    before = rmqctl("trace", store, "--key", asked, "-o", "json").document()["stages"]
    key = before[0]["uniqueKey"]
    lose_slot(store, topic, key)
    found = rmqctl("trace", store, "--unique-key", key, "-o", "json").document()["stages"]
    assert [row | {"indexed": None} for row in found] == [row | {"indexed": None} for row in before]
    assert all(row["indexed"] is False for row in found if row["kind"] == lost)


@pytest.mark.parametrize("way", [(), ("--scan",)])
def test_a_damaged_record(way: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    write_at(store / "commitlog" / f"{0:020}", 3600 + 100, b"!")
    found = rmqctl("trace", store, "--key", "poison-7", *way, "-o", "json").document()
    assert [row["damage"] for row in found["stages"]] == [None, "bad-body-crc", None, None]
    assert "1 of 4 records damaged" in found["verdict"]


def test_a_placeholder(golden: Golden, rmqctl: Rmqctl) -> None:
    """trace, dump and query name a placeholder; a group that is past it need not have consumed the message."""
    store = golden("broker-497")
    write_at(store / "commitlog" / f"{0:020}", 2180 + 100, b"!")
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    found = rmqctl("trace", store, "--key", "poison-7", "-o", "json").document()
    assert [row["placeholder"] for row in found["stages"]] == ["bad-body-crc", None, None, None]
    failed = "stored, failed twice at billing, now in %DLQ%billing"
    assert found["verdict"] == f"{failed}, a placeholder replaces 1 of 4 records (bad-body-crc)"
    for asked in (
        ("trace", store, "--key", "poison-7"),
        ("dump", store, "--around", "2180"),
        ("query", store, "--topic", "orders", "--key", "poison-7"),
    ):
        marked = [line for line in rmqctl(*asked).out.splitlines() if line.endswith("placeholder: bad-body-crc")]
        assert len(marked) == 1
        assert "2180" in marked[0].split()
    assert "placeholder#58; bad-body-crc)" in rmqctl("trace", store, "--key", "poison-7", "--mermaid").out


def test_a_group_that_is_past_a_placeholder(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    first = rmqctl("trace", store, "--key", "o1", "-o", "json").document()["stages"][0]["physicalOffset"]
    write_at(store / "commitlog" / f"{0:020}", first + 100, b"!")
    assert rmqctl("recover", store, "--keep-going", "--yes").code == 3
    found = rmqctl("trace", store, "--key", "o1", "-o", "json").document()
    replaced = "a placeholder replaces 1 of 1 record (bad-body-crc)"
    assert found["verdict"] == f"stored, billing is past its place, {replaced}"
    assert [row["state"] for row in found["groups"]] == ["consumed"]


def test_lost_queues(golden: Golden, rmqctl: Rmqctl) -> None:
    """Op messages are found in the log, and the verdict says what no queue leads to."""
    store = golden("broker-497")
    stages = kinds(rmqctl, store, "--key", "tx61")
    for topic in ("payments", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
        shutil.rmtree(store / "consumequeue" / topic)
    found = rmqctl("trace", store, "--key", "tx61", "-o", "json").document()
    assert [(row["kind"], row["physicalOffset"]) for row in found["stages"]] == stages
    assert [row["reachable"] for row in found["stages"]] == [True, True, False, False]
    assert (
        found["verdict"]
        == "committed after 3.6 s and 1 check, no group has an offset in its queue, no queue leads to 2 copies"
    )


def test_light_queues(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("533-lmq")
    light = next(
        row for row in rmqctl("dump", store, "-o", "jsonl").rows() if "INNER_MULTI_DISPATCH" in row["properties"]
    )
    found = rmqctl("trace", store, "--offset", str(light["physicalOffset"]), "-o", "json").document()
    topics = [row["topic"] for row in found["stages"] if row["kind"] == "lmq" and row["reachable"]]
    assert topics == light["properties"]["INNER_MULTI_DISPATCH"].split(",")


def test_a_message_without_unique_key(golden: Golden, rmqctl: Rmqctl) -> None:
    """3.2.6 gives none: messages with the same key stay apart."""
    found = rmqctl("trace", golden("326-basic"), "--key", "user-15", "-o", "json").document()
    assert len(found["stages"]) > 1
    assert found["verdict"].startswith(f"{len(found['stages'])} messages: (1) ")


def store_with_client_records(root: Path) -> Path:
    """Two messages with one key, a client's record of both, and a producer's retry of the first."""

    def named(**properties: str) -> bytes:
        return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()

    told = (
        "Pub\x01100\x01\x01producers\x01orders\x01U1\x01\x01k1\x01host\x015\x013\x010\x01id\x01true\x02"
        "SubBefore\x01110\x01\x01billing\x01request\x01U1\x010\x01k1\x02SubAfter\x01request\x01U1\x017\x01true\x01k1\x010\x02"
        "SubBefore\x01120\x01\x01audit\x01other\x01U2\x010\x01k1\x02"
    )
    records = [
        Record(topic="orders", properties=named(KEYS="k1", UNIQ_KEY="U1")),
        Record(
            topic="orders", queue_offset=1, properties=named(KEYS="k1", UNIQ_KEY="U1"), store_timestamp=1795252519848
        ),
        Record(topic="orders", queue_offset=2, properties=named(KEYS="k1", UNIQ_KEY="U2")),
        Record(topic="RMQ_SYS_TRACE_TOPIC", properties=named(KEYS="U1 U2 k1", UNIQ_KEY="U3"), body=told.encode()),
    ]
    write_log(root, records, file_size=4096)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@billing":{1:2},"orders@audit":{1:0}}}'
    )
    listed = {"topic": "orders", "expressionType": "TAG", "expression": "TagB || TagC"}
    groups = {"subscriptionGroupTable": {"billing": {"subscriptionDataSet": [listed]}}}
    (root / "config" / "subscriptionGroup.json").write_text(json.dumps(groups))
    return root


def test_what_clients_recorded(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = store_with_client_records(tmp_path)
    found = rmqctl("trace", store, "--unique-key", "U1", "-o", "json").document()
    assert [(row["kind"], row["queueOffset"]) for row in found["stages"]] == [("stored", 0), ("resent", 1)]
    told = [(row["record"], row["group"], row["success"], row["costMs"]) for row in found["clientRecords"]]
    assert told == [
        ("Pub", "producers", True, 3),
        ("SubBefore", "billing", None, None),
        ("SubAfter", "billing", True, 7),
    ]
    shown = rmqctl("trace", store, "--unique-key", "U1").out
    assert "SubAfter" in shown


def test_clients_records_of_replicas_are_told_once(tmp_path: Path, rmqctl: Rmqctl) -> None:
    one, other = (store_with_client_records(tmp_path / name) for name in ("one", "other"))
    found = rmqctl("trace", one, other, "--unique-key", "U1", "-o", "json").document()
    assert [row["record"] for row in found["clientRecords"]] == ["Pub", "SubBefore", "SubAfter"]


def test_a_clients_record_without_unique_key(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """It is no stage of the message."""
    recorded = Record(topic="RMQ_SYS_TRACE_TOPIC", properties=b"KEYS\x01U1\x02", body=b"")
    write_log(tmp_path, [Record(topic="orders", properties=b"UNIQ_KEY\x01U1\x02"), recorded], file_size=4096)
    found = rmqctl("trace", tmp_path, "--key", "U1", "-o", "json").document()
    assert [row["topic"] for row in found["stages"]] == ["orders"]


def test_a_chain_of_records_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records without UNIQ_KEY, each of which names the one before."""
    records = [Record(properties=b"")]
    size = len(encode(records[0], 0))
    for number in range(40):
        at = 0 if number == 0 else size + (number - 1) * (size + 60)
        named = f"ORIGIN_MESSAGE_ID\x01C0A8070900002A9F{at:016X}\x02".encode()
        records.append(Record(properties=named.ljust(60, b"\x02")))
    write_log(tmp_path, records, file_size=65536)
    asked: list[int] = []
    linked = links.linked_offsets

    def counted(record: stage.Record, store: ReadOnlyStore) -> Iterator[int]:
        asked.append(record.message.physical_offset)
        return linked(record, store)

    monkeypatch.setattr(links, "linked_offsets", counted)
    question = Question(offset=size + 39 * (size + 60))
    found = Trace([ReadOnlyStore(tmp_path)], question, threads=1, warm_up=lambda: None)
    assert len(found.lives[0].stages) == len(records)
    assert len(asked) <= 3 * len(records)


def test_each_body_is_read_once_for_clients_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if many messages have the key."""
    records = [Record(properties=f"KEYS\x01k1\x02UNIQ_KEY\x01U{number}\x02".encode()) for number in range(20)]
    write_log(tmp_path, records, file_size=65536)
    read: list[bytes] = []

    def is_trace(body: bytes) -> bool:
        read.append(body)
        return False

    monkeypatch.setattr(client_trace, "is_trace", is_trace)
    found = Trace([ReadOnlyStore(tmp_path)], Question(key="k1"), threads=1, warm_up=lambda: None)
    assert (len(found.lives), len(read)) == (20, 20)


def test_groups_that_wait_or_filter(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = store_with_client_records(tmp_path)
    found = rmqctl("trace", store, "--unique-key", "U1", "-o", "json").document()
    assert found["verdict"].startswith("stored twice by producer retry, ")
    assert "passed over by billing, whose expression leaves out the tag" in found["verdict"]
    assert "waits for audit (1 message before it)" in found["verdict"]
    both = rmqctl("trace", store, "--key", "k1", "-o", "json").document()
    assert {row["uniqueKey"] for row in both["stages"]} == {"U1", "U2"}
    assert [row["uniqueKey"] for row in both["clientRecords"]] == ["U1", "U1", "U1", "U2"]


def test_the_first_record_has_expired(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    (store / "commitlog" / f"{0:020}").unlink()
    found = rmqctl("trace", store, "--key", "poison-7", "-o", "json").document()
    assert [row["kind"] for row in found["stages"]] == ["retry", "dead-letter"]
    assert "an earlier record of the message, at offset 2180, is no longer in the log" in found["remarks"]


def test_an_id_of_the_other_kind_is_said(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    row = rmqctl("trace", store, "--key", "poison-7", "-o", "json").document()["stages"][0]
    unique, msg_id, at = row["uniqueKey"], row["msgId"], row["physicalOffset"]
    for option, given, other in (("--msg-id", unique, "--unique-key"), ("--unique-key", msg_id, "--msg-id")):
        traced = rmqctl("trace", store, option, given)
        assert traced.code == 1
        assert f"of the message at {at}: ask with {other}, or --id" in traced.out.splitlines()[0]
        queried = rmqctl("query", store, option, given, "-o", "jsonl")
        assert f"of the message at {at}: ask with {other}, or --id" in queried.err
    assert "give them to --id" in rmqctl("query", store, "--msg-id", f"{msg_id},{msg_id}").err


@pytest.mark.parametrize("way", [(), ("--scan",)])
def test_the_ids_of_a_batch(way: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-batch")
    rows = rmqctl("dump", store, "--limit", "3", "-o", "jsonl").rows()
    ids = ",".join([rows[0]["msgId"], rows[1]["properties"]["UNIQ_KEY"], rows[2]["msgId"].lower(), "gone"])
    found = rmqctl("query", store, "--id", ids, *way, "-o", "jsonl")
    assert [row["physicalOffset"] for row in found.rows()] == [row["physicalOffset"] for row in rows]
    assert "no message has the id gone" in found.err
    traced = rmqctl("trace", store, "--id", ids, *way, "-o", "json").document()
    assert {row["msgId"] for row in traced["stages"]} >= {row["msgId"] for row in rows}
    assert "no message has the id gone" in traced["remarks"]


def test_when_a_delayed_message_is_due(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-delay")
    units = {row["physicalOffset"]: row for row in rmqctl("dump", store, "--topic", SCHEDULE, "-o", "jsonl").rows()}
    assert units
    for at in sorted(units)[:5]:
        found = rmqctl("trace", store, "--offset", at, "-o", "json").document()
        for row in found["stages"]:
            due = units[row["physicalOffset"]]["tagsCode"] if row["kind"] == "delayed" else None
            assert row["dueTimestamp"] == due
        if "not delivered" in found["verdict"]:
            assert f"; due at {found['stages'][0]['dueTime']}" in found["verdict"]
    half = rmqctl("trace", golden("broker-533"), "--key", "poison-7", "-o", "json").document()["stages"][0]
    assert half["dueTimestamp"] is half["checkTimes"] is None


def test_unresolved_messages_are_listed(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Half messages without an end, and delayed ones that the offset of their level has skipped."""
    delayed, halves = unpack("497-delay", tmp_path / "a"), unpack("broker-497", tmp_path / "b")
    nothing = rmqctl("trace", delayed, halves, "--unresolved")
    assert (nothing.code, nothing.out.count("\n")) == (0, 1)
    (delayed / "config" / "delayOffset.json").write_text('{"offsetTable":{1:1,3:25477423}}')
    offsets = halves / "config" / "consumerOffset.json"
    table = offsets.read_text().replace("{0:80", "{0:0").replace("{0:60", "{0:0")
    table = re.sub(r"(TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS\":\{0:)0", r"\g<1>58", table)
    offsets.write_text(table)
    found = rmqctl("trace", delayed, halves, "--unresolved", "-o", "json")
    rows = found.document()["unresolved"]
    assert found.code == 1
    late = [row for row in rows if row["kind"] == "delayed"]
    assert [(row["topic"], row["queueId"], row["queueOffset"], row["skipped"]) for row in late] == [
        (SCHEDULE, 2, number, True) for number in range(5)
    ]
    assert all(row["dueTimestamp"] == row["storeTimestamp"] + 10_000 for row in late)
    assert {row["kind"] for row in rows} == {"delayed", "half"}
    assert min(row["ageMs"] for row in rows if row["kind"] == "half") > 0
    assert "5 delayed messages overdue or skipped" in rmqctl("trace", delayed, halves, "--unresolved").out
    assert rmqctl("trace", delayed, "--unresolved", "--key", "o1").code == 2
