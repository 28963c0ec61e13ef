"""config/topics.json: what append adds to it is what a broker would have, in the broker's own dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.profile import PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.store.config.fastjson import fastjson_dumps, fastjson_loads
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.topic_config import QUEUE_NUMS_MAX, usual_queue_nums
from tests.conftest import unpack
from tests.support.small_store import created, message

BROKERS = {"broker-497": PROFILE_4_9, "broker-533": PROFILE_5_3}


def topics_json(root: Path) -> Path:
    return root / "config" / "topics.json"


def written(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = fastjson_loads(topics_json(root).read_text())
    return content


def queue_nums(root: Path) -> dict[str, tuple[int, int]]:
    return {
        topic: (entry["readQueueNums"], entry["writeQueueNums"])
        for topic, entry in written(root)["topicConfigTable"].items()
    }


def append(root: Path, *queues: tuple[str, int]) -> None:
    store = MessageStore(root)
    for topic, queue_id in queues:
        assert store.put_message(message(topic=topic, queue_id=queue_id)).is_ok
    store.close()


@pytest.mark.parametrize("name", BROKERS)
def test_the_dialect_is_the_brokers(name: str, tmp_path: Path) -> None:
    content = topics_json(unpack(name, tmp_path)).read_bytes()
    assert fastjson_dumps(fastjson_loads(content.decode())).encode() == content


def test_the_file_does_not_depend_on_the_order_in_which_queues_are_noted(tmp_path: Path) -> None:
    queues = [("b", 0), ("a", 0), ("c", 1), ("a", 2)]
    files = []
    for number, noted in enumerate((queues, queues[::-1])):
        store = created(tmp_path / str(number))
        store.topic_configs.note(noted)
        store.close()
        files.append(list(written(tmp_path / str(number))["topicConfigTable"].items()))
    assert files[0] == files[1]
    assert [topic for topic, _ in files[0]][-3:] == ["a", "b", "c"]


@pytest.mark.parametrize("name", BROKERS)
def test_new_topics_come_to_those_that_are_there(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    before_bytes, before = topics_json(root).read_bytes(), written(root)
    append(root, ("Fresh", 0), ("%RETRY%shipping", 0), ("orders", 3))
    after = written(root)
    table = after["topicConfigTable"]
    fresh, retry = table.pop("Fresh"), table.pop("%RETRY%shipping")
    assert table == before["topicConfigTable"]
    assert list(table) == list(before["topicConfigTable"])
    orders = table["orders"]
    assert fresh == orders | {"topicName": "Fresh"}
    assert list(fresh) == list(orders)
    assert (retry["readQueueNums"], retry["writeQueueNums"], retry["perm"]) == (1, 1, 6)
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert after["dataVersion"]["timestamp"] > before["dataVersion"]["timestamp"]
    assert after["dataVersion"].keys() == before["dataVersion"].keys()
    assert (root / "config" / "topics.json.bak").read_bytes() == before_bytes


def test_nothing_new_leaves_the_file_alone(tmp_path: Path) -> None:
    root = unpack("broker-497", tmp_path)
    config = root / "config"
    before = {path.name: path.read_bytes() for path in config.iterdir()}
    append(root, ("orders", 0), ("payments", 3))
    assert {path.name: path.read_bytes() for path in config.iterdir()} == before


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_new_store_gets_the_file(profile: Profile, tmp_path: Path) -> None:
    store = created(tmp_path / "s", profile)
    store.put_message(message(topic="OrderPaid", queue_id=2))
    store.put_messages([message(topic="Batch", queue_id=6), message(topic="Batch", queue_id=6)])
    store.close()
    content = written(tmp_path / "s")
    assert queue_nums(tmp_path / "s") == {"OrderPaid": (4, 4), "Batch": (7, 7)}
    assert content["dataVersion"]["counter"] == 1
    is_5 = profile.knows_topic_attributes
    assert ("stateVersion" in content["dataVersion"]) is is_5
    assert (content["topicConfigTable"]["Batch"].get("attributes") == {}) is is_5
    assert not (tmp_path / "s" / "config" / "topics.json.bak").exists()


def test_the_topic_of_a_delayed_message_is_there_before_it_is_delivered(tmp_path: Path) -> None:
    created(tmp_path / "s").close()
    store = MessageStore(tmp_path / "s")
    store.put_message(message(topic="Later", queue_id=5, properties={"DELAY": "3"}))
    half = {"REAL_TOPIC": "Paid", "REAL_QID": "9"}
    store.put_message(message(topic="RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0, properties=half))
    copied = {"REAL_TOPIC": "Copied", "REAL_QID": "0", "DELAY": "1"}
    store.put_message(message(topic="SCHEDULE_TOPIC_XXXX", queue_id=0, properties=copied), as_it_is=True)
    store.put_message(message(topic="Plain", queue_id=0, properties={"REAL_TOPIC": "Nowhere", "REAL_QID": "0"}))
    store.put_message(
        message(topic="RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0, properties={"REAL_TOPIC": "../x", "REAL_QID": "0"})
    )
    store.put_message(
        message(topic="RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0, properties={"REAL_TOPIC": "NoQueue", "REAL_QID": "-1"})
    )
    store.close()
    assert queue_nums(tmp_path / "s") == {
        "SCHEDULE_TOPIC_XXXX": (18, 18),
        "Later": (6, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1),
        "Paid": (10, 10),
        "Copied": (4, 4),
        "Plain": (4, 4),
    }


def test_queue_numbers_are_raised_and_never_lowered(tmp_path: Path) -> None:
    root = unpack("broker-497", tmp_path)
    path = topics_json(root)
    content = written(root)
    table = content["topicConfigTable"]
    table["orders"] |= {"readQueueNums": 8, "writeQueueNums": 2, "perm": 4, "order": True}
    table["events"] |= {"readQueueNums": 2, "writeQueueNums": 8}
    path.write_text(fastjson_dumps(content))
    append(root, ("orders", 7), ("events", 3))
    assert queue_nums(root) == queue_nums(root) | {"orders": (8, 2), "events": (4, 8)}
    append(root, ("orders", 8))
    entry = written(root)["topicConfigTable"]["orders"]
    assert entry == table["orders"] | {"readQueueNums": 9, "writeQueueNums": 9}


def test_queues_that_no_broker_lists(tmp_path: Path) -> None:
    """Of LMQ they know without topics.json; and so many queues would be the clients' end."""
    store = created(tmp_path / "s")
    for topic, queue_id in (("%LMQ%one", 0), ("Far", QUEUE_NUMS_MAX), ("Last", QUEUE_NUMS_MAX - 1)):
        assert store.put_message(message(topic=topic, queue_id=queue_id)).is_ok
    store.close()
    assert queue_nums(tmp_path / "s") == {"Last": (QUEUE_NUMS_MAX, QUEUE_NUMS_MAX)}


def test_the_first_file_lists_every_queue(tmp_path: Path) -> None:
    """Or `verify` would take the topics that it lacks for deleted ones."""
    root = unpack("497-basic", tmp_path)
    assert not topics_json(root).exists()
    append(root)
    assert not topics_json(root).exists()
    append(root, ("Fresh", 0))
    assert set(queue_nums(root)) == {"Fresh"} | {topic for topic, _ in ReadOnlyStore(root).queues}
    assert queue_nums(root)["OrderPaid"] == (4, 4)


def test_what_is_refused_is_not_listed(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    assert not store.put_message(message(topic="a/b")).is_ok
    assert not store.put_message(message(topic="Large", body=bytes(4096))).is_ok
    store.close()
    assert not topics_json(tmp_path / "s").exists()


def test_a_bad_file_and_its_backup(tmp_path: Path) -> None:
    """The backup is continued, as a broker would, and kept: it may be all that there is."""
    root = unpack("broker-533", tmp_path)
    backup = root / "config" / "topics.json.bak"
    kept = backup.read_bytes()
    topics_json(root).write_bytes(b'{"dataVersion":{')
    append(root, ("Fresh", 0))
    assert backup.read_bytes() == kept
    assert set(queue_nums(root)) == {*fastjson_loads(kept.decode())["topicConfigTable"], "Fresh"}


def test_a_file_that_cannot_be_gone_on_with_is_left(tmp_path: Path) -> None:
    root = unpack("broker-533", tmp_path)
    for path in (topics_json(root), root / "config" / "topics.json.bak"):
        path.write_bytes(b"{torn")
    store = MessageStore(root)
    assert store.put_message(message(topic="Fresh")).is_ok
    store.close()
    assert "is not JSON" in store.topic_configs.problem
    assert topics_json(root).read_bytes() == b"{torn"


def test_it_is_written_before_the_queues_are(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    store.put_message(message(topic="First", queue_id=0))
    store.dispatch()
    assert queue_nums(tmp_path / "s") == {"First": (4, 4)}
    store.put_message(message(topic="Second", queue_id=0))
    store.close()
    assert list(queue_nums(tmp_path / "s")) == ["First", "Second"]
    first_only = fastjson_loads((tmp_path / "s" / "config" / "topics.json.bak").read_text())
    assert list(first_only["topicConfigTable"]) == ["First"]


@pytest.mark.parametrize("name", BROKERS)
def test_system_topics_have_the_brokers_own_numbers(name: str, tmp_path: Path) -> None:
    """Those whose number is the broker's, not a cluster's or a producer's."""
    table = written(unpack(name, tmp_path))["topicConfigTable"]
    given = {
        topic: entry["readQueueNums"]
        for topic, entry in table.items()
        if not topic.startswith(("DefaultCluster", "broker-a", "TBW"))
    }
    assert {topic: usual_queue_nums(topic) for topic in given} == given
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in given
