"""Stores of DLedger, or whose queues are in RocksDB: their log is read all the same, and nothing of them is changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.store.config import store_path
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack
from tests.support.databases import write_database
from tests.support.file_edits import write_at

Golden = Callable[[str], Path]
SHOWS_START = ("recover", "--dry-run")  # of a DLedger store: what a start makes of its log
CHANGES = (
    ("append", "--topic", "T", "--body", "x"),
    ("recover", "--dry-run"),
    ("recover", "--yes"),
    ("rebuild", "all", "--yes"),
    ("truncate", "--dirty", "--yes"),
    ("clean", "--dry-run"),
    ("checkpoint", "set", "--physic-msg-timestamp", "1", "--yes"),
)


@pytest.mark.parametrize(
    "name", ["550-combined-separate", "550-combined-samedir", "550-rocksdb-crash", "broker-550-dledger"]
)
def test_a_store_of_another_layout_is_not_changed(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    before = tree_hash(store)
    for verb, *more in CHANGES:
        repairs = verb in ("recover", "rebuild", "truncate")
        if (verb == "rebuild" and name == "broker-550-dledger") or (repairs and "dledger" not in name):
            continue
        result = rmqctl(verb, store, *more)
        if (verb, *more) == SHOWS_START and name == "broker-550-dledger":
            assert (result.code, "0 messages, 0 bytes" in result.out) == (0, True)
            continue
        assert (result.code, "RocksDB" in result.err or "DLedger" in result.err) == (13, True), verb
    assert tree_hash(store) == before


@pytest.mark.parametrize("name", ["550-combined-separate", "550-combined-samedir"])
def test_the_file_queues_of_a_combined_store_are_read(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    assert rmqctl("info", store, "-o", "json").document()["layout"] == "files and RocksDB"
    assert rmqctl("verify", store).out == "level 3: no findings\n"
    assert rmqctl("queue", store).code == 0


@pytest.mark.parametrize("name", ["broker-533-rocksdb", "broker-550-rocksdb", "550-rocksdb-crash"])
def test_the_log_is_read_without_the_extra_for_databases(
    name: str, golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    store = golden(name)
    before = tree_hash(store)
    info = rmqctl("info", store, "-o", "json")
    assert (info.code, info.document()["layout"]) == (4, "RocksDB")
    assert rmqctl("doctor", store).code == 4 or name == "550-rocksdb-crash"
    verified = rmqctl("verify", store, "--level", "1", "-o", "json")
    assert (verified.code, verified.document()["findings"]) == (0, [])
    assert "its queues are in RocksDB, and are not read: install the extra `rocksdb`" in verified.err
    dumped = rmqctl("dump", store, "-o", "jsonl").rows()
    assert len(dumped) == verified.document()["messages"] > 0
    one = dumped[len(dumped) // 2]
    for how in (
        ("--msg-id", one["msgId"]),
        ("--topic", one["topic"], "--queue", one["queueId"], "--offset", one["queueOffset"], "--scan"),
    ):
        found = rmqctl("query", store, *how, "-o", "jsonl").rows()
        assert one["physicalOffset"] in [row["physicalOffset"] for row in found]
    for refused in (("verify",), ("queue",), ("query", "--topic", one["topic"], "--key", "x")):
        result = rmqctl(refused[0], store, *refused[1:])
        assert (result.code, "install the extra `rocksdb`" in result.err) == (13, True)
    row = next(row for row in dumped if "UNIQ_KEY" in row["properties"])
    life = rmqctl("trace", store, "--unique-key", row["properties"]["UNIQ_KEY"], "-o", "json").document()
    assert {stage["reachable"] for stage in life["stages"]} == {None}
    assert tree_hash(store) == before


@pytest.mark.parametrize("name", ["broker-533-rocksdb", "broker-550-rocksdb"])
def test_queues_and_config_in_rocksdb_are_read_as_files(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    before = tree_hash(store)
    dumped = rmqctl("dump", store, "-o", "jsonl").rows()
    in_log = {(row["topic"], row["queueId"], row["queueOffset"]): row["physicalOffset"] for row in dumped}
    in_queues = {
        (row["topic"], row["queueId"], unit["queueOffset"]): unit["physicalOffset"]
        for row in rmqctl("queue", store, "-o", "jsonl").rows()
        for unit in rmqctl("queue", store, row["topic"], row["queueId"], "-o", "jsonl").rows()
    }
    assert in_queues == in_log
    assert rmqctl("verify", store).out.startswith("level 3: no findings")
    assert rmqctl("doctor", store).out.startswith(f"healthy: {len(dumped)} messages")
    lag = rmqctl("lag", store, "billing", "-o", "json").document()["groups"]
    offsets = [row["offset"] for row in lag if row["topic"] == "orders"]
    assert offsets == ([64, 75, 75, 74] if "533" in name else [26, 25, 26, 25])
    one = next(row for row in dumped if row["topic"] == "orders")
    found = rmqctl("query", store, "--topic", "orders", "--key", one["properties"]["KEYS"], "-o", "jsonl").rows()
    assert one["physicalOffset"] in [row["physicalOffset"] for row in found]
    traced = rmqctl("trace", store, "--offset", one["physicalOffset"], "-o", "json").document()
    assert [(stage["reachable"], stage["kind"]) for stage in traced["stages"][:1]] == [(True, "stored")]
    assert [group["group"] for group in traced["groups"]] == ["billing"]
    assert rmqctl("info", store, "-o", "json").document()["configDatabases"] == [
        "config/topics", "config/subscriptionGroups", "config/consumerOffsets",
    ]  # fmt: skip
    assert tree_hash(store) == before


LINKED = [
    ("broker-550-rocksdb", "consumequeue", "consumequeue"),
    ("broker-550-rocksdb", "consumequeue", "consumequeue_rocksdb"),
    ("broker-550-rocksdb", "config", "config"),
    ("broker-550-rocksdb", "config/topics", "config/topics"),
    ("broker-550-rdbidx", "rocksdbstore", "rocksdbstore"),
    ("broker-550-dledger", "dledger-n0/index", "dledger-n0/index"),
]


@pytest.mark.parametrize(("name", "part", "link"), LINKED)
def test_a_linked_part_is_told_and_nothing_is_repaired(
    name: str, part: str, link: str, golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = golden(name)
    (store / part).rename(tmp_path / "outside")
    (store / link).symlink_to(tmp_path / "outside")
    (store / part).mkdir(exist_ok=True)
    found = rmqctl("verify", store, "-o", "json")
    links = [finding["path"] for finding in found.document()["findings"] if finding["code"] == "link-not-followed"]
    assert (found.code, links, found.document()["notes"]) == (4, [link], [])
    assert link == "config" or len(found.document()["findings"]) == 1
    assert "bytes behind the log" not in found.err
    assert link not in found.document()["notLookedAt"]
    diagnosed = rmqctl("doctor", store, "-o", "json")
    cause = diagnosed.document()["causes"][0]
    assert (diagnosed.code, cause["code"], cause["next"]) == (4, "unreadable-part", f"rmqctl verify {store}")
    assert rmqctl("recover", store, "--dry-run").code == 4
    assert rmqctl("verify", store, "--follow-links").code == 0


def test_each_unit_of_a_dledger_store_leads_to_a_dumped_message(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-550-dledger")
    dumped = {
        (row["topic"], row["queueId"], row["queueOffset"]): row for row in rmqctl("dump", store, "-o", "jsonl").rows()
    }
    assert len(dumped) == 83
    units = ReadOnlyStore(store).queues
    in_queues = {
        (*key, unit.queue_offset): unit for key, queue in units.items() for unit in queue.units(0, queue.max_offset)
    }
    assert {key: (unit.physical_offset, unit.size) for key, unit in in_queues.items()} == {
        key: (row["physicalOffset"], row["size"]) for key, row in dumped.items()
    }


def test_a_dledger_store_is_read_as_an_ordinary_one(golden: Golden, rmqctl: Rmqctl) -> None:
    """Each verb that reads; and damage to its queues, index and config is found."""
    store = golden("broker-550-dledger")
    before = tree_hash(store)
    assert rmqctl("verify", store).out.startswith("level 3: no findings")
    assert rmqctl("doctor", store).out.startswith("healthy: 83 messages")
    assert sum(row["messages"] for row in rmqctl("queue", store, "-o", "jsonl").rows()) == 83
    assert [row["behind"] for row in rmqctl("lag", store, "billing", "-o", "json").document()["groupTotals"]] == [2]
    found = rmqctl("query", store, "--topic", "orders", "--key", "o1", "-o", "jsonl")
    assert (len(found.rows()), "--scan searches" in found.err) == (1, False)
    assert rmqctl("dump", store, "--group", "billing", "--unconsumed", "--topic", "%RETRY%billing").code == 0
    assert rmqctl("serve", store, "--listen", "127.0.0.1", "--until-synced", "1").code == 13
    assert tree_hash(store) == before
    write_at(store / "consumequeue" / "orders" / "1" / f"{0:020d}", 5 * 20 + 7, b"\xff")
    (index,) = (store / "index").iterdir()
    index.unlink()
    result = rmqctl("doctor", store, "-o", "json").document()
    assert [(cause["code"], cause["next"]) for cause in result["causes"]] == [
        ("queue-damaged", f"rmqctl rebuild {store} queues --dry-run"),
        ("index-gone", f"rmqctl rebuild {store} index --dry-run"),
    ]
    assert {finding["code"] for finding in rmqctl("verify", store, "-o", "json").document()["findings"]} >= {
        "unit-mismatch", "index-missing",
    }  # fmt: skip
    assert rmqctl("rebuild", store, "all", "--yes").code == 3
    assert rmqctl("verify", store).out.startswith("level 3: no findings")
    assert rmqctl("undo", store, "--yes").code == 0
    assert rmqctl("verify", store).code == 1
    assert rmqctl("config", "set-offset", store, "billing", "orders", 1, "--to", 1, "--yes").code == 0
    write_at(store / "dledger-n0" / "data" / f"{0:020d}", 25610, bytes(20000))
    refused = rmqctl("rebuild", store, "all", "--yes")
    assert (refused.code, "28 entries missing" in refused.err) == (2, True)


def test_a_damaged_entry_header_is_a_finding_and_its_message_is_read(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-550-dledger")
    log = store / "dledger-n0" / "data" / f"{0:020d}"
    write_at(log, 312 + 16, b"\xff")  # the second entry's term
    result = rmqctl("verify", store, "--level", "1", "-o", "json")
    document = result.document()
    found = [
        (finding["code"], finding["path"], finding["fileOffset"], finding["size"]) for finding in document["findings"]
    ]
    assert (result.code, found) == (1, [("bad-entry", f"dledger-n0/data/{0:020d}", 312, 48)])
    assert (document["messages"], document["behindDamage"]["offset"]) == (83, 312)
    damaged = rmqctl("dump", store, "--damaged", "-o", "jsonl")
    assert (damaged.code, [row["damage"] for row in damaged.rows() if "damage" in row]) == (1, ["bad-entry"])


BY_CONF = [
    ("497-tx", "storeType=defaultRocksDB", "files and RocksDB"),
    ("497-tx", "rocksdbCQDoubleWriteEnable=true", "files and RocksDB"),
    ("broker-533-rocksdb", "storeType=defaultRocksDB", "RocksDB"),
    ("broker-550-dledger", "enableDLegerCommitLog=true\ndLegerSelfId=n0", "DLedger"),
    ("broker-550-dledger", "storeType=defaultRocksDB", "DLedger"),
]


@pytest.mark.parametrize(("name", "said", "layout"), BY_CONF)
def test_broker_conf_decides_about_the_layout(
    name: str, said: str, layout: str, golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store, conf = golden(name), tmp_path / "broker.conf"
    conf.write_text(said + "\n")
    before = tree_hash(store)
    told = ("--broker-conf", conf)
    assert rmqctl("info", store, *told, "-o", "json").document()["layout"] == layout
    for question in (("dump",), ("verify", "--level", "1"), ("query", "--topic", "x", "--key", "y", "--scan")):
        assert rmqctl(question[0], store, *told, *question[1:]).code == 0, question
    for words in (["verify"], ["queue"], ["config", "show"]):
        assert rmqctl(*words, store, *told).code == 0, words
    for verb, *more in CHANGES:
        may_refill = "RocksDB" in layout and verb in ("recover", "rebuild", "truncate")
        if (verb, layout) != ("rebuild", "DLedger") and not may_refill:
            expected = 0 if (verb, *more) == SHOWS_START and layout == "DLedger" else 13
            assert rmqctl(verb, store, *told, *more).code == expected, verb
    assert tree_hash(store) == before


@pytest.mark.parametrize(
    ("said", "code"),
    [("storeType=defaultRocksDB", 13), ("rocksdbCQDoubleWriteEnable=true", 13), ("enableDLegerCommitLog=true", 13)],
)
def test_no_store_of_another_layout_is_created(said: str, code: int, tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(said + "\n")
    assert (
        rmqctl("append", tmp_path / "new", "--create", "--broker-conf", conf, "--topic", "T", "--body", "x").code
        == code
    )
    assert not (tmp_path / "new").exists()


def test_a_dledger_store_without_its_log(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    conf = tmp_path / "broker.conf"
    for name, said, what in (
        ("497-tx", "enableDLegerCommitLog=true\ndLegerSelfId=n7", "no folder dledger-n7"),
        ("broker-550-dledger", "enableDLegerCommitLog=true\ndLegerSelfId=n7", "no folder dledger-n7"),
    ):
        conf.write_text(said + "\n")
        result = rmqctl("dump", unpack(name, tmp_path / name), "--broker-conf", conf)
        assert (result.code, what in result.err) == (13, True)
    store = golden("broker-550-dledger")
    (store / "dledger-n1" / "data").mkdir(parents=True)
    result = rmqctl("dump", store)
    assert (result.code, "several logs: dledger-n0, dledger-n1" in result.err) == (13, True)
    conf.write_text("dLegerSelfId=n0\n")
    assert rmqctl("dump", store, "--broker-conf", conf).code == 0


@pytest.mark.parametrize("verb", [("recover",), ("truncate", "--dirty"), ("rebuild", "all")], ids=lambda verb: verb[0])
def test_a_broker_conf_of_other_file_sizes_changes_nothing(
    verb: tuple[str, ...], golden: Golden, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    store = golden("497-crash")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1000\n")
    found = rmqctl(verb[0], store, *verb[1:], "--broker-conf", conf, "--yes")
    assert (found.code, found.out) == (2, "")
    assert "broker.conf says mappedFileSizeCommitLog=1000, but all 6 files of the log have 65536 bytes" in found.err


def test_a_trace_does_not_say_that_no_group_has_an_offset_in_rocksdb(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's offset is in config/consumerOffsets, which is not read without the extra."""
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    store = golden("broker-550-rocksdb")
    traced = rmqctl("trace", store, "--key", "warm-23", "-o", "json")
    verdict = traced.document()["verdict"]
    assert traced.code == 4
    assert "no group" not in verdict
    assert "in RocksDB, and were not read" in verdict


def test_an_answer_without_the_configuration_in_rocksdb_is_not_complete(
    golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs topics, groups or offsets exits with 4 without the extra, and no stale file stands for them."""
    store = golden("broker-550")
    write_database(store / "config" / "rdb", {"default": {}})
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    for words in (["info"], ["verify"], ["doctor"], ["lag"], ["config", "show"]):
        result = rmqctl(*words, store)
        assert (result.code, "install the extra `rocksdb`" in result.err) == (4, True), words
    assert rmqctl("recover", store, "--dry-run").code == 4
    for words in (["verify", "--level", "1"], ["queue"], ["dump", "--limit", "1"]):
        assert rmqctl(words[0], store, *words[1:]).code == 0, words
    assert rmqctl("verify", store, "-o", "json").document()["findings"] == []
    assert "orders" not in rmqctl("config", "show", store, "topics").out


@pytest.mark.parametrize("name", ["topics", "consumerOffsets"])
def test_a_damaged_config_database_is_its_own_cause(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    """The real 5.5.0 does not start on either, nor on config/rdb; `config restore` writes no database."""
    store = golden("broker-550-rocksdb")
    for table in (store / "config" / name).glob("*.sst"):
        write_at(table, 20, b"\xff")
    found = rmqctl("doctor", store, "-o", "json").document()
    (cause,) = found["causes"]
    assert (cause["code"], cause["next"]) == ("config-database-damaged", f"rmqctl config show {store}")
    assert {one["path"] for one in cause["evidence"]} == {f"config/{name}"}
    assert "not healthy: config-database-damaged; the next start fails" in rmqctl("doctor", store).out
    refused = rmqctl("config", "set-offset", store, "billing", "orders", "--to", "earliest", "--yes")
    assert (refused.code, "mqadmin resetOffsetByTime" in refused.err) == (13, True)


def test_a_store_whose_layout_nothing_shows_is_said_to_be_a_guess(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("550-rocksdb-crash")
    shutil.rmtree(store / "consumequeue")
    assert "or in RocksDB (storeType=defaultRocksDB), only --broker-conf can tell" in rmqctl("info", store).err
    conf = store.parent / "broker.conf"
    conf.write_text("storeType=defaultRocksDB\n")
    told = rmqctl("info", store, "--broker-conf", conf)
    assert ("can tell" in told.err, "queues in RocksDB are" in told.err) == (False, True)


@pytest.mark.parametrize("leaves_abort", [False, True])
def test_all_verbs_count_the_cost_of_one_damaged_message_alike(
    leaves_abort: bool, golden: Golden, rmqctl: Rmqctl
) -> None:
    """A start leaves a row that leads behind the end, and does not dispatch the damaged message: both are lost."""
    store = golden("broker-550-rocksdb")
    at = rmqctl("dump", store, "-o", "jsonl").rows()[60]["physicalOffset"]
    write_at(store / "commitlog" / f"{0:020d}", at + 100, b"\xff")
    if leaves_abort:
        (store / "abort").touch()
    plan = rmqctl("recover", store, "--dry-run", "-o", "json").document()
    assert plan["lost"] == plan["restart"]["lost"] == {"records": 78, "bytes": 34501}
    assert "1 message lost, the next start loses 77 more" in rmqctl("doctor", store).out
    assert "drops 77 good messages" in rmqctl("verify", store).err
