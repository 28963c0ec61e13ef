"""Delayed messages: due or not by an injected clock, as they come to their topics, and how far that went."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rmqctl.errors import Unreadable
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.message import Message
from rmqctl.format.profile import PROFILE_4_9, PROFILE_5_3, PROFILES, Profile
from rmqctl.format.properties import hash_code
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.fastjson import fastjson_dumps, fastjson_loads
from rmqctl.store.config.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.schedule import message_timed_up
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.write.put_message import PutMessageResult, PutMessageStatus
from tests.conftest import unpack
from tests.support.small_store import FAST, IPV6, created, findings, message, stored

T0 = 1_795_252_516_000
CONFIG = "config/delayOffset.json"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each put a millisecond after the one before."""
    ticks = count(T0)
    monkeypatch.setattr("rmqctl.store.engine.message_store.now_ms", lambda: next(ticks))


def delayed(number: int, level: int, **changes: Any) -> Any:
    return message(
        number,
        properties={"TAGS": f"Tag{number % 3}", "KEYS": f"k{number}", "DELAY": str(level), "WAIT": "true"},
        **changes,
    )


def opened(root: Path, **conf: Any) -> MessageStore:
    return MessageStore(root, BrokerConf(**conf)) if root.exists() else created(root)


def delivered(root: Path) -> list[str]:
    return [m.properties["KEYS"] for m in stored(root) if m.topic == "OrderPaid"]


def test_what_is_due_is_delivered_in_the_order_of_its_level(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    puts = [
        store.put_message(delayed(number, level)).append for number, level in enumerate((1, 2, 1, 3, 1))
    ]  # 1 s, 5 s, 10 s
    first = puts[0].store_timestamp if puts[0] else 0
    service = store.schedule_message_service()
    assert service.deliver_due(10**15) == 0  # not dispatched yet
    store.dispatch()
    steps = {999: 0, 1000: 1, 1001: 0, 1004: 2, 5000: 0, 5001: 1, 10_002: 0, 10_003: 1, 99_999: 0}
    assert {after: service.deliver_due(first + after) for after in steps} == steps
    store.close()
    assert delivered(tmp_path / "s") == ["k0", "k2", "k4", "k1", "k3"]
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_message_keeps_all_but_its_place_and_time(profile: Profile, tmp_path: Path) -> None:
    store = created(tmp_path / "s", profile, property_crc=profile is PROFILE_5_3)
    sent = delayed(
        1,
        1,
        body=zlib.compress(b"\x01\x02" * 30),
        sys_flag=1 | 8,
        flag=77,
        reconsume_times=3,
        prepared_transaction_offset=99,
        born_host=IPV6,
    )
    assert store.put_message(sent).is_ok
    store.dispatch()
    assert store.schedule_message_service().deliver_due(T0 + 10**6) == 1
    store.dispatch()
    unit = store.reader.units("OrderPaid", 1, 0, 10)[0]
    store.close()
    waiting, found = stored(tmp_path / "s")
    assert waiting.topic == SCHEDULE_TOPIC
    same = ("flag", "sys_flag", "born_timestamp", "born_host_bytes", "store_host_bytes", "reconsume_times", "body_crc")
    assert [getattr(found, name) for name in same] == [getattr(waiting, name) for name in same]
    without_crc = [
        {name: value for name, value in m.properties.items() if name != "__CRC32#"} for m in (waiting, found)
    ]
    assert without_crc[0] == without_crc[1] == sent.properties | {"REAL_TOPIC": "OrderPaid", "REAL_QID": "1"}
    assert (found.topic, found.queue_id, found.queue_offset, found.prepared_transaction_offset) == (
        "OrderPaid",
        1,
        0,
        0,
    )
    assert found.store_timestamp > waiting.store_timestamp
    assert unit.tags_code == hash_code("Tag1")
    assert findings(tmp_path / "s") == []


def test_a_time_beyond_the_level_is_due_at_once(tmp_path: Path) -> None:
    """The broker's clock went back, or a unit is damaged: it does not wait for ever."""
    store = created(tmp_path / "s")
    put = store.put_message(delayed(0, 3)).append
    assert put is not None
    store.dispatch()
    service = store.schedule_message_service()
    assert service.deliver_due(put.store_timestamp - 1) == 1
    store.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"REAL_TOPIC": TRANS_HALF_TOPIC},
        {"REAL_TOPIC": ""},
        {"REAL_QID": ""},
        {"REAL_QID": "-1"},
        {"REAL_QID": "x"},
        {"REAL_QID": "9" * 10},
    ],
)
def test_what_has_no_topic_to_go_to_is_passed_over(changes: dict[str, str], tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    found = {"DELAY": "1", "REAL_TOPIC": "OrderPaid", "REAL_QID": "0", "KEYS": "bad"} | changes
    found = {name: value for name, value in found.items() if value}
    store.put_message(message(0, topic=SCHEDULE_TOPIC, queue_id=0, properties=found), as_it_is=True)
    store.put_message(delayed(1, 1))
    store.dispatch()
    service = store.schedule_message_service()
    assert service.deliver_due(T0 + 10**6) == 1
    service.persist()
    store.close()
    assert delivered(tmp_path / "s") == ["k1"]
    assert fastjson_loads((tmp_path / "s" / CONFIG).read_text())["offsetTable"] == {"1": 2}


def test_what_is_not_taken_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = created(tmp_path / "s")
    for number in range(3):
        store.put_message(delayed(number, 1))
    store.dispatch()
    busy = PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
    refusals: Iterator[PutMessageResult | None] = iter((None, busy, None, None))
    monkeypatch.setattr(store, "_refusal", lambda: next(refusals))
    service = store.schedule_message_service()
    assert [service.deliver_due(T0 + 10**6) for _ in range(3)] == [1, 2, 0]
    store.close()
    assert delivered(tmp_path / "s") == ["k0", "k1", "k2"]


def test_delivery_goes_on_where_it_was(tmp_path: Path) -> None:
    root = tmp_path / "s"
    for round_ in range(3):
        store = opened(root)
        service = store.schedule_message_service()
        for number in range(15):
            store.put_message(delayed(15 * round_ + number, number % 2 + 1))
        store.dispatch()
        assert service.deliver_due(T0 + 10**8) == 15
        service.persist()
        store.close()
    assert sorted(delivered(root)) == sorted(f"k{number}" for number in range(45))
    assert (root / CONFIG).read_text() == '{\n\t"offsetTable":{1:24,2:21\n\t}\n}'
    assert (root / (CONFIG + ".bak")).read_text() == '{\n\t"offsetTable":{1:16,2:14\n\t}\n}'
    assert findings(root) == []


def test_offsets_outside_the_queue_are_corrected(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root)
    for number in range(35):
        store.put_message(delayed(number, 1))
    store.close()
    (root / "config").mkdir(exist_ok=True)
    for path in sorted((root / "consumequeue" / SCHEDULE_TOPIC / "0").iterdir())[:1]:
        path.unlink()
    (root / CONFIG).write_text('{\n\t"offsetTable":{1:3,2:500\n\t}\n}')
    store = opened(root)
    assert store.schedule_message_service().deliver_due(T0 + 10**8) == 25
    (root / CONFIG).write_text('{\n\t"offsetTable":{1:99\n\t}\n}')
    assert store.schedule_message_service().deliver_due(T0 + 10**8) == 0
    store.close()


def test_levels_are_the_configurations(tmp_path: Path) -> None:
    """Three levels: a higher one is the third, as the broker has it."""
    root = tmp_path / "s"
    created(root).close()
    store = opened(root, delays_ms=(1000, 2000, 4000))
    put = store.put_message(delayed(0, 9)).append
    assert put is not None
    assert put.queue_id == 2
    store.dispatch()
    service = store.schedule_message_service()
    assert [service.deliver_due(put.store_timestamp + after) for after in (3999, 4000)] == [0, 1]
    store.close()


def test_a_level_of_many_files(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root)
    for number in range(300):
        store.put_message(delayed(number, 1))
    store.dispatch()
    assert store.schedule_message_service().deliver_due(T0 + 10**8) == 300
    store.close()
    assert delivered(root) == [f"k{number}" for number in range(300)]
    assert findings(root) == []


def test_a_unit_that_points_elsewhere_delivers_nothing(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root)
    for number in range(3):
        store.put_message(delayed(number, 1))
    store.close()
    queue = next((root / "consumequeue" / SCHEDULE_TOPIC / "0").iterdir())
    data = bytearray(queue.read_bytes())
    CQ_UNIT.struct.pack_into(data, CQ_UNIT.size, 5, 30, 0)
    queue.write_bytes(data)
    store = opened(root)
    assert store.schedule_message_service().deliver_due(T0 + 10**8) == 2
    store.close()
    assert delivered(root) == ["k0", "k2"]


@pytest.mark.parametrize("name", ["broker-497", "broker-533"])
def test_the_file_is_written_as_the_broker_writes_it(name: str, tmp_path: Path) -> None:
    """Nothing is due any more; the offsets go back one, and one message is delivered again."""
    root = unpack(name, tmp_path)
    before = (root / CONFIG).read_text()
    (root / CONFIG).write_text(before.replace("1:13", "1:12"))
    store = MessageStore(root, BrokerConf(delays_ms=(1000, 2000, 4000)))
    service = store.schedule_message_service()
    assert service.deliver_due(10**15) == 1
    service.persist()
    store.close()
    assert (root / CONFIG).read_text() == before
    assert (root / (CONFIG + ".bak")).read_text() == before.replace("1:13", "1:12")
    assert findings(root) == []


def test_a_message_is_as_the_broker_delivered_it(tmp_path: Path) -> None:
    """Each pair of a scheduled and a delivered message of the real brokers."""
    pairs = 0
    for name in ("broker-497", "broker-533"):
        messages = stored(unpack(name, tmp_path / name))
        waiting = {(m.properties["UNIQ_KEY"], m.reconsume_times): m for m in messages if m.topic == SCHEDULE_TOPIC}
        for found in messages:
            if "DELAY" not in found.properties or found.topic != found.properties["REAL_TOPIC"]:
                continue  # of a dead letter, the topic that it was delayed for
            before = waiting[found.properties["UNIQ_KEY"], found.reconsume_times]
            ours = message_timed_up(before)
            assert ours is not None
            theirs = Message(*found)
            assert (ours.topic, ours.queue_id, ours.body) == (theirs.topic, theirs.queue_id, bytes(theirs.body))
            assert (ours.flag, ours.sys_flag, ours.reconsume_times) == (
                theirs.flag,
                theirs.sys_flag,
                theirs.reconsume_times,
            )
            assert (ours.born_host, ours.store_host, ours.born_timestamp) == (
                theirs.born_host,
                theirs.store_host,
                theirs.born_timestamp,
            )
            assert ours.properties == theirs.properties
            assert ours.prepared_transaction_offset == theirs.prepared_transaction_offset
            pairs += 1
    assert pairs > 100


def test_5x_counts_versions(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root, PROFILE_5_3)
    (root / "config").mkdir(exist_ok=True)
    (root / CONFIG).write_text(
        fastjson_dumps({"dataVersion": {"counter": 4, "stateVersion": 7, "timestamp": 5}, "offsetTable": {}})
    )
    for number in range(200):
        store.put_message(delayed(number, 1))
    store.dispatch()
    service = store.schedule_message_service()
    service.deliver_due(T0 + 10**8)
    service.persist()
    store.close()
    said = fastjson_loads((root / CONFIG).read_text())
    assert (said["dataVersion"]["counter"], said["dataVersion"]["stateVersion"], said["offsetTable"]) == (
        5,
        7,
        {"1": 200},
    )
    assert said["dataVersion"]["timestamp"] > T0


def test_nothing_is_written_when_nothing_happened(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    service = store.schedule_message_service()
    assert service.deliver_due(T0) == 0
    service.persist()
    store.close()
    assert not (tmp_path / "s" / "config").exists()


def test_a_broken_main_file_does_not_become_the_backup(tmp_path: Path) -> None:
    root = tmp_path / "s"
    store = created(root)
    (root / "config").mkdir(exist_ok=True)
    (root / CONFIG).write_text('{"offsetTable":{1:')
    (root / (CONFIG + ".bak")).write_text('{"offsetTable":{1:1}}')
    for number in range(3):
        store.put_message(delayed(number, 1))
    store.dispatch()
    service = store.schedule_message_service()
    assert service.deliver_due(T0 + 10**6) == 2
    service.persist()
    store.close()
    assert (root / (CONFIG + ".bak")).read_text() == '{"offsetTable":{1:1}}'
    assert fastjson_loads((root / CONFIG).read_text()) == {"offsetTable": {"1": 3}}


def test_without_a_file_that_can_be_read_nothing_is_delivered_twice(tmp_path: Path) -> None:
    store = created(tmp_path / "s")
    (tmp_path / "s" / "config").mkdir(exist_ok=True)
    (tmp_path / "s" / CONFIG).write_text("{")
    with pytest.raises(Unreadable, match="not JSON"):
        store.schedule_message_service()
    store.close()


def test_a_full_disk_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = created(tmp_path / "s", PROFILE_4_9)
    store.put_message(delayed(0, 1))
    store.dispatch()
    service = store.schedule_message_service()
    service.deliver_due(T0 + 10**6)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rmqctl.logfile.system.writable_storage.WritableStorage.replace_file", full)
        with pytest.raises(OSError, match="No space"):
            service.persist()
    service.persist()
    store.close()
    assert fastjson_loads((tmp_path / "s" / CONFIG).read_text()) == {"offsetTable": {"1": 1}}


def test_the_service_delivers_in_its_own_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.engine.store_services.now_ms", lambda: T0 + 10**8)
    store = created(tmp_path / "s", PROFILE_5_3)
    arrived = threading.Event()
    kept = store.put_message

    def noticed(put: Any, *, as_it_is: bool = False) -> PutMessageResult:
        result = kept(put, as_it_is=as_it_is)
        if put.topic == "OrderPaid" and as_it_is:
            arrived.set()
        return result

    monkeypatch.setattr(store, "put_message", noticed)
    with StoreServices(store, deliver=True, intervals=FAST) as services:
        services.put_message(delayed(0, 18))
        assert arrived.wait(30)
    assert delivered(tmp_path / "s") == ["k0"]
    assert fastjson_loads((tmp_path / "s" / CONFIG).read_text())["offsetTable"] == {"18": 1}
    assert findings(tmp_path / "s") == []
