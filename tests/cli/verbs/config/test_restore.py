"""`rmqctl config restore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.config.config_file import CONFIG_FILES, CONFIG_FILES_OF_5
from rmqctl.store.config.fastjson import fastjson_loads
from tests.conftest import Result, Rmqctl, tree_hash, unpack

Golden = Callable[[str], Path]
STORES = ("broker-497", "broker-533", "broker-550")
# a broker makes them at each start, and they have no queue of their own accord
MADE_AT_START = {
    "BenchmarkTest", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "TBW102",
    "broker-a", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_SYNC_BROKER_MEMBER_broker-a", "rmq_sys_wheel_timer",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}  # fmt: skip


def topics_json(store: Path) -> Path:
    return store / "config" / "topics.json"


def topics(store: Path) -> dict[str, Any]:
    found: dict[str, Any] = fastjson_loads(topics_json(store).read_text())["topicConfigTable"]
    return found


def groups(store: Path) -> dict[str, Any]:
    text = (store / "config" / "subscriptionGroup.json").read_text()
    found: dict[str, Any] = fastjson_loads(text)["subscriptionGroupTable"]
    return found


def restore(rmqctl: Rmqctl, store: Path, *arguments: object) -> Result:
    return rmqctl("config", "restore", store, *arguments)


def lose(store: Path, name: str) -> None:
    for path in (store / "config").glob(f"{name}*"):
        path.unlink()


@pytest.mark.parametrize("name", STORES)
def test_topics_are_rebuilt_as_they_were_and_undone(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    expected = topics(store)
    lose(store, "topics.json")
    before = tree_hash(store)
    plan = restore(rmqctl, store, "topics.json", "--dry-run", "-o", "json")
    assert (plan.code, tree_hash(store)) == (1, before)
    done = restore(rmqctl, store, "topics.json", "--yes", "-o", "json")
    assert (done.code, done.out) == (0, plan.out)
    found = topics(store)
    assert done.document()["restoredFrom"] == "store"
    assert {row.pop("topic"): row for row in done.document()["topics"]} == found
    assert set(expected) - MADE_AT_START <= set(found) <= set(expected) | {"RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    if name == "broker-550":  # nothing shows the fourth queue: it never got a message, and nobody reads it
        expected["timed"] |= {"readQueueNums": 3, "writeQueueNums": 3}
    assert {topic: entry for topic, entry in found.items() if topic in expected} == {
        topic: entry for topic, entry in expected.items() if topic in found
    }
    assert restore(rmqctl, store, "topics.json", "--yes").err == (
        "nothing to do: config/topics.json can be loaded by a broker\n"
    )
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_without_queues_the_topics_come_from_the_log(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    expected = topics(store)
    lose(store, "topics.json")
    lose(store, "consumerOffset.json")
    (store / "consumequeue").rename(store / "moved")
    assert restore(rmqctl, store, "topics.json", "--yes").code == 0
    found = topics(store)
    assert {"orders", "events", "payments", "%RETRY%billing", "%DLQ%billing"} < set(found)
    assert {topic: entry for topic, entry in found.items() if topic in expected} == {
        topic: entry for topic, entry in expected.items() if topic in found
    }


def test_batch_queues_get_their_type(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("queues/533-batchcq", tmp_path)
    batch = {path.name for path in (store / "batchconsumequeue").iterdir()}
    assert batch
    lose(store, "topics.json")
    assert restore(rmqctl, store, "topics.json", "--yes").code == 0
    found = topics(store)
    assert {topic for topic in found if found[topic]["attributes"] == {"queue.type": "BatchCQ"}} == batch
    topics_json(store).write_text(topics_json(store).read_text().replace("BatchCQ", "SimpleCQ"))
    assert restore(rmqctl, store, "topics.json", "--from", "store", "--yes").code == 0
    assert {topic for topic, entry in topics(store).items() if entry["attributes"]} == batch


@pytest.mark.parametrize("name", STORES)
def test_the_bak_is_taken_byte_for_byte(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    backup = topics_json(store).with_name("topics.json.bak")
    good = backup.read_bytes()
    topics_json(store).write_bytes(b"\0" * 4096)
    before = tree_hash(store)
    plan = restore(rmqctl, store, "topics.json", "--yes", "-o", "json").document()
    assert plan["restoredFrom"] == "bak"
    assert "NUL" in plan["state"]
    assert topics_json(store).read_bytes() == backup.read_bytes() == good
    assert [action["path"] for action in plan["actions"]] == ["config/topics.json"]
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


def test_a_good_file_and_its_bak_change_places(golden: Golden, rmqctl: Rmqctl) -> None:
    """The .bak does not have the topic that was made last; the queues have."""
    store = golden("broker-497")
    backup = topics_json(store).with_name("topics.json.bak")
    good, older = topics_json(store).read_bytes(), backup.read_bytes()
    result = restore(rmqctl, store, "topics.json", "--from", "bak", "--yes")
    assert result.code == 0
    assert (topics_json(store).read_bytes(), backup.read_bytes()) == (older, good)
    assert "note: 1 topic with queues are not in it: %DLQ%billing; --from store adds them" in result.err
    added = restore(rmqctl, store, "topics.json", "--from", "store", "--yes", "-o", "json").document()
    assert {row["topic"] for row in added["topics"]} == {"%DLQ%billing", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    assert backup.read_bytes() == older
    kept = topics_json(store).read_text()
    at = kept.index(',\n\t\t"%DLQ%billing"')
    assert kept[kept.index("topicConfigTable") : at] in older.decode()


def test_queue_numbers_are_raised_to_what_the_store_shows(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    text = topics_json(store).read_text()
    at = text.index('"orders":{')
    few = text[:at] + text[at:].replace('"readQueueNums":4', '"readQueueNums":1', 1)
    topics_json(store).write_text(few)
    found = restore(rmqctl, store, "topics.json", "--from", "store", "--yes", "-o", "json").document()
    assert {"orders"} <= {row["topic"] for row in found["topics"]}
    assert topics(store)["orders"] == fastjson_loads(text)["topicConfigTable"]["orders"]


@pytest.mark.parametrize("name", STORES)
def test_groups_are_rebuilt_as_they_were(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden(name)
    expected = groups(store)
    lose(store, "subscriptionGroup.json")
    assert restore(rmqctl, store, "subscriptionGroup.json", "--yes").code == 0
    found = groups(store)
    assert set(found) == {"billing", "popgroup"} & set(expected)
    assert found == {group: expected[group] for group in found}
    (store / "config" / "consumerOffset.json").unlink()
    lose(store, "consumerOffset.json")
    lose(store, "subscriptionGroup.json")
    assert restore(rmqctl, store, "subscriptionGroup.json", "--yes").code == 0
    assert set(groups(store)) == set(found)  # of %RETRY% topics: that of POP has the topic's name in it, too


@pytest.mark.parametrize("name", ["consumerOffset.json", "delayOffset.json"])
def test_offsets_come_from_the_bak_only(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    path = store / "config" / name
    good = path.read_bytes()
    path.unlink()
    assert restore(rmqctl, store, name, "--yes").code == 0
    assert path.read_bytes() == good
    lose(store, name)
    before = tree_hash(store)
    result = restore(rmqctl, store, name, "--yes")
    assert (result.code, "nothing else in the store has its content" in result.err) == (4, True)
    assert restore(rmqctl, store, name, "--from", "store", "--yes").code == 2
    assert restore(rmqctl, store, name, "--from", "bak", "--yes").code == 4
    assert tree_hash(store) == before


def test_the_configuration_folder_may_be_missing(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("497-basic")
    assert not (store / "config" / "topics.json").exists()
    for path in (store / "config").glob("*"):
        path.unlink()
    if (store / "config").exists():
        (store / "config").rmdir()
    before = tree_hash(store)
    assert restore(rmqctl, store, "topics.json", "--yes").code == 0
    assert {row["topic"] for row in rmqctl("queue", store, "-o", "jsonl").rows()} <= set(topics(store))
    assert rmqctl("undo", store, "--yes").code == 0
    assert tree_hash(store) == before


@pytest.mark.parametrize("name", sorted({*CONFIG_FILES, *CONFIG_FILES_OF_5} - {"lmqConsumerOffset.json"}))
def test_a_whole_file_stays(name: str, golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    before = tree_hash(store)
    result = restore(rmqctl, store, name, "--yes")
    assert (result.code, result.err) == (0, f"nothing to do: config/{name} can be loaded by a broker\n")
    assert tree_hash(store) == before


def test_wrong_requests(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    assert restore(rmqctl, store, "../../etc/passwd", "--yes").code == 2
    assert restore(rmqctl, store, "topics.json", "--from", "slave", "--yes").code == 2
    assert restore(rmqctl, store, "consumerFilter.json", "--from", "store", "--yes").code == 2
    lose(store, "topics.json")
    assert restore(rmqctl, store, "topics.json").code == 12
    assert restore(rmqctl, golden("broker-533-rocksdb"), "topics.json", "--yes").code == 13


def test_groups_of_strange_names_and_queues_are_rebuilt(golden: Golden, rmqctl: Rmqctl) -> None:
    """The queueId is none that a broker gives; the name is a lone surrogate, which JSON can write."""
    store = golden("broker-533")
    lose(store, "subscriptionGroup.json")
    offsets = store / "config" / "consumerOffset.json"
    strange = '"%RETRY%big@big":{2147483647:1},"orders@\\ud800":{0:1},'
    offsets.write_text(offsets.read_text().replace('"offsetTable":{', '"offsetTable":{' + strange))
    assert restore(rmqctl, store, "subscriptionGroup.json", "--from", "store", "--yes").code == 0
    assert groups(store)["big"]["retryQueueNums"] == 1
    assert "\ud800" in groups(store)
    assert "config-invalid" not in rmqctl("verify", store, "-o", "json").out


def test_a_misspelt_verb_is_named(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    assert "'restor'" in rmqctl("config", "restor", store, "topics.json").err
    assert "config show STORE" in rmqctl("config", store).err


def test_a_plan_from_the_bak_says_what_it_has(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("broker-533")
    count = len(topics(store))
    topics_json(store).write_text("{")
    (note,) = restore(rmqctl, store, "topics.json", "--dry-run", "-o", "json").document()["notes"]
    assert note.startswith(f"the .bak has {count} in topicConfigTable, last changed at 20")
