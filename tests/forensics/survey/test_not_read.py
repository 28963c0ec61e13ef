"""What lies in a store's folder and is not read is named: `healthy` and `no findings` are not about it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.forensics.survey.not_read import in_words, not_read
from rmqctl.store.config import store_path
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Golden, Rmqctl
from tests.support.databases import change_database, write_database


def words(root: Path) -> str:
    store = ReadOnlyStore(root)
    found = in_words(not_read(store))
    store.close()
    return found


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("497-basic", ""),
        ("broker-533", ""),
        ("broker-550-rdbidx", ""),
        ("550-combined-separate", ""),
        ("550-combined-samedir", ""),
        ("broker-550-dledger", ""),
    ],
)
def test_of_real_brokers(name: str, named: str, golden: Golden) -> None:
    assert words(golden(name)) == named


@pytest.mark.parametrize(
    ("name", "folder"), [("550-combined-separate", "consumequeue_rocksdb"), ("550-combined-samedir", "consumequeue")]
)
def test_queues_in_both_without_the_extra(
    name: str, folder: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    assert words(golden(name)) == f"not read: {folder}"  # rocksdbstore has no rows


def test_info_names_each_part_and_whether_it_is_read(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550-rdbidx")
    change_database(root / "rocksdbstore", "trans", {bytes(8) + b"@topic@id": bytes(8)})
    for name in ("users", "acls"):
        write_database(root / "config" / name, {"default": {b"bob": b'{"password":"secret"}'}})
    (root / "config" / "tieredStoreMetadata.json").write_text("{}")
    (root / "config" / "topicQueueMapping.json").write_text("{}")
    (root / "brokerIdentity").write_text("x")
    result = rmqctl("info", root)
    reads, unread = result.out.splitlines()[1:3]
    assert reads.split(maxsplit=1)[1].split(", ") == [
        "commit log", "HA", "compacted topics", "queues", "index (files", "rocksdbstore: RocksDB)",
        "half messages (rocksdbstore: RocksDB)", "timers", "acls (config/acls: RocksDB)", "configuration",
        "static topics", "users (config/users: RocksDB)",
    ]  # fmt: skip
    assert unread.endswith("config/tieredStoreMetadata.json (messages that were moved there are not read)")
    parts = {(one["path"], one["name"]): one for one in rmqctl("info", root, "-o", "json").document()["parts"]}
    assert [parts["rocksdbstore", name]["database"] for name in ("index", "half messages")] == [True, True]
    assert parts["config/tieredStoreMetadata.json", "tiered storage"]["read"] is False
    assert "secret" not in result.out


def test_of_two_configurations_the_one_that_the_broker_reads_is_named(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("broker-550")
    write_database(root / "config" / "rdb", {"default": {}})
    assert words(root) == (
        "not read: config/consumerOffset.json, config/consumerOffset.json.bak, config/subscriptionGroup.json, "
        "config/subscriptionGroup.json.bak, config/topics.json, config/topics.json.bak"
    )
    assert "(the broker reads config/rdb instead)" in rmqctl("info", root).out
    conf = root.parent / "broker.conf"
    conf.write_text("configManagerVersion=v1\n")
    assert "config/rdb (the broker reads the files instead)" in rmqctl("info", root, "--broker-conf", conf).out


def test_files_that_nobody_knows(golden: Golden) -> None:
    root = golden("497-basic")
    (root / "tiered" / "empty").mkdir(parents=True)
    assert words(root) == ""
    (root / "tiered" / "empty" / "segment").write_bytes(b"x")
    (root / "config" / "mine.json").write_bytes(b"{}")
    assert words(root) == "not read: tiered, config/mine.json"


def test_timers_without_their_files(golden: Golden, rmqctl: Rmqctl) -> None:
    """The real 5.5.0 delivers none of the 25 that wait; with timerlog, it delivers all."""
    root = golden("broker-550")
    shutil.rmtree(root / "timerlog")
    for verb, code in (("verify", 1), ("doctor", 1), ("info", 0)):
        result = rmqctl(verb, root)
        assert result.code == code
        words_said = " ".join((result.out + result.err).split())
        assert "missing: timerlog (although config/timercheck and rmq_sys_wheel_timer exist)" in words_said
        assert result.out.startswith("not healthy: timer-gone; 25 messages never delivered; ") == (verb == "doctor")
        document = rmqctl(verb, root, "-o", "json").document()
        assert set(document["notLookedAt"]) == {"timerlog"}
