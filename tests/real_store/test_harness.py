"""The harness itself: what the real store writes, it loads and reads; and on golden stores it says what the golden
files say.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import expected, unpack
from tests.real_store import java_build
from tests.real_store.harness import VERSIONS, Geometry, RealRocketMQ

pytestmark = pytest.mark.interop

SMALL = Geometry(commitlog_file_size=65536, queue_file_units=50, index_slots=100, index_entries=400)
COUNT = 400
TIMEOUT = 120


@pytest.fixture(params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> RealRocketMQ:
    return RealRocketMQ(request.param, timeout=TIMEOUT)


def test_what_was_put_is_loaded_and_read(broker: RealRocketMQ, tmp_path: Path) -> None:
    store = tmp_path / "store"
    put = broker.put(store, COUNT, geometry=SMALL, body_size=100, key_words=2, topics=2, queues_per_topic=3)
    assert put.messages == COUNT
    assert not (store / "abort").exists()
    assert len(list((store / "commitlog").iterdir())) > 1

    loaded = broker.load(store, geometry=SMALL)
    assert loaded.loaded
    assert (loaded.min_phy_offset, loaded.max_phy_offset) == (0, put.max_phy_offset)
    filled = {
        (queue.topic, queue.queue_id) for queue in loaded.queues if queue.max_offset
    }  # 4.9.7 makes queues for delays, too
    assert filled == {(f"topic-{topic}", queue_id) for topic in range(2) for queue_id in range(3)}
    assert sum(queue.max_offset - queue.min_offset for queue in loaded.queues) == COUNT

    said = broker.read(store, geometry=SMALL, start=True)
    assert said["load"]
    assert said["maxPhyOffset"] == put.max_phy_offset
    assert len(said["messages"]) == COUNT
    assert not (store / "abort").exists()
    for message in said["messages"]:
        assert message["bodyLength"] == 100
        assert message["bodyCrc"] == message["crc32"]
        assert {"UNIQ_KEY", "KEYS", "TAGS"} <= message["properties"].keys()
    by_key = {(row["topic"], row["key"]): row["physicalOffsets"] for row in said["keyQueries"]}
    for message in said["messages"]:
        for key in (message["properties"]["UNIQ_KEY"], *message["properties"]["KEYS"].split()):
            assert message["physicalOffset"] in by_key[message["topic"], key]


def test_a_crash_leaves_abort_and_loses_nothing(broker: RealRocketMQ, tmp_path: Path) -> None:
    store = tmp_path / "store"
    put = broker.put(store, COUNT, geometry=SMALL, crash=True)
    assert (store / "abort").exists()
    loaded = broker.load(store, geometry=SMALL)
    assert loaded.loaded
    assert loaded.max_phy_offset == put.max_phy_offset
    assert sum(queue.max_offset for queue in loaded.queues) == COUNT


def test_the_same_seed_puts_the_same_messages(tmp_path: Path) -> None:
    broker = RealRocketMQ("4.7.1", timeout=TIMEOUT)

    seeds = {"first": 7, "second": 7, "third": 8}
    for name, seed in seeds.items():
        broker.put(tmp_path / name, 20, geometry=SMALL, seed=seed)
    answers = broker.read_all([tmp_path / name for name in seeds], geometry=SMALL)
    first, second, third = ([message["bodyCrc"] for message in answer["messages"]] for answer in answers)
    assert first == second
    assert first != third


def test_a_golden_store_reads_as_its_golden_file_says(broker: RealRocketMQ, tmp_path: Path) -> None:
    """Also several at once; one that is broken fails alone."""
    name = {"4.7.1": "471-crash", "4.9.7": "497-batch", "5.3.3": "533-basic"}[broker.version]
    stores = [unpack(name, tmp_path / str(number)) for number in range(3)]
    wanted = expected(name)
    wanted_queries = wanted.pop("keyQueries")
    for said in broker.read_all(stores, geometry=SMALL):
        queries = said.pop("keyQueries")
        assert all(row in queries for row in wanted_queries)
        assert said == wanted
    (stores[1] / "commitlog/broken").write_bytes(b"1")
    assert [said["load"] for said in broker.read_all(stores, geometry=SMALL, start=True)] == [True, False, True]


def test_a_store_that_does_not_load_is_reported(broker: RealRocketMQ, tmp_path: Path) -> None:
    store = tmp_path / "store"
    broker.put(store, 10, geometry=SMALL)
    larger = SMALL._replace(commitlog_file_size=131072)
    assert not broker.load(store, geometry=larger).loaded
    assert not broker.read(store, geometry=larger, start=True)["load"]
    with pytest.raises(RuntimeError, match="the store does not load"):
        broker.put(store, 1, geometry=larger)


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQCTL_REAL_STORE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="no mvn on the PATH: install a JDK 17 and Maven"):
        RealRocketMQ("5.3.3").prepare()


def test_of_two_builds_at_once_the_first_stays(tmp_path: Path) -> None:
    folder = tmp_path / "classes"

    def make(making: Path) -> None:
        (making / "ours").touch()
        folder.mkdir()
        (folder / "theirs").touch()

    assert java_build.made(folder, make) == folder
    assert [path.name for path in tmp_path.rglob("*")] == ["classes", "theirs"]
