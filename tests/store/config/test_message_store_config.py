"""broker.conf, for who writes: each setting does what it does in a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.forensics.verify import verify
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, Profile
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.file_sizes import Geometry, geometry_of_conf
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.engine.flush import FlushIntervals
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.store_services import StoreServices
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings, put_settings
from rmqctl.store.write.put_message import PutMessageStatus
from tests.support.configured_store import conf_of, created, put
from tests.support.small_store import message, stored


def findings(root: Path, conf: BrokerConf) -> list[str]:
    return [f"{finding.code} {finding.path} {finding.detail}" for finding in verify(ReadOnlyStore(root, conf)).findings]


def test_sizes_are_those_of_broker_conf(tmp_path: Path) -> None:
    extension = "mappedFileSizeConsumeQueueExt=1000\nmapperFileSizeBatchConsumeQueue=4600\n"
    assert geometry_of_conf(conf_of(tmp_path, extension)) == Geometry(4096, 200, 10, 40, 1000, 4600)
    assert geometry_of_conf(BrokerConf()) == Geometry()
    store = created(tmp_path)
    put(store, 100)
    store.close()
    assert {path.stat().st_size for path in (tmp_path / "s" / "commitlog").iterdir()} == {4096}
    assert {path.stat().st_size for path in (tmp_path / "s" / "consumequeue" / "OrderPaid" / "0").iterdir()} == {200}
    assert {path.stat().st_size for path in (tmp_path / "s" / "index").iterdir()} == {40 + 10 * 4 + 40 * 20}


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (PROFILE_4_7, PutSettings(PROFILE_4_7, 500, os_page_cache_busy_ms=7, delay_level_max=2)),
        (PROFILE_4_9, PutSettings(PROFILE_4_9, 500, multi_dispatch=True, os_page_cache_busy_ms=7, delay_level_max=2)),
        (PROFILE_5_3, PutSettings(PROFILE_5_3, 500, True, True, 2, 7)),
    ],
)
def test_a_broker_obeys_what_it_knows(profile: Profile, expected: PutSettings, tmp_path: Path) -> None:
    text = (
        "maxMessageSize=500\nenabledAppendPropCRC=true\nenableMultiDispatch=true\nenableLmq=true\n"
        "osPageCacheBusyTimeOutMills=7\nmessageDelayLevel=1s 3m\n"
    )
    assert put_settings(conf_of(tmp_path, text), profile) == expected


def test_messages_are_put_by_these_settings(tmp_path: Path) -> None:
    text = "maxMessageSize=300\nenabledAppendPropCRC=true\nenableMultiDispatch=true\nenableLmq=true\n"
    text += "messageDelayLevel=1s 3m\n"
    store = created(tmp_path, text)
    assert store.put_message(message(body=bytes(301))).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.put_message(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})).is_ok
    assert store.put_message(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "DELAY": "9"})).is_ok
    assert store.put_message(message(properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}, topic="%RETRY%g")).is_ok
    store.close()
    records = stored(tmp_path / "s")
    assert [(m.topic, m.queue_id, m.properties.get("INNER_MULTI_QUEUE_OFFSET")) for m in records] == [
        ("OrderPaid", 0, "0"), (SCHEDULE_TOPIC, 1, None), ("%RETRY%g", 0, None),
    ]  # fmt: skip
    assert all("__CRC32#" in m.properties for m in records)
    unit = ReadOnlyStore(tmp_path / "s").queues[SCHEDULE_TOPIC, 1].find(0)
    assert unit is not None
    assert unit.tags_code == records[1].store_timestamp + 180_000


def test_without_an_index_there_is_none(tmp_path: Path) -> None:
    store = created(tmp_path, "messageIndexEnable=false\n")
    put(store, 5)
    store.close()
    assert list((tmp_path / "s" / "index").iterdir()) == []


def log_folders(tmp_path: Path) -> dict[str, list[int]]:
    """Numbers of the log's files in each folder."""
    return {
        name: sorted(int(path.name) // 4096 for path in (tmp_path / name).iterdir())
        for name in "abc"
        if (tmp_path / name).exists()
    }


def test_files_go_to_several_folders_in_turn(tmp_path: Path) -> None:
    text = f"storePathCommitLog={tmp_path}/b,{tmp_path}/a\n"
    store = created(tmp_path, text)
    put(store, 100)
    store.close()
    count = sum(map(len, log_folders(tmp_path).values()))
    assert count > 5
    assert log_folders(tmp_path) == {"a": list(range(0, count, 2)), "b": list(range(1, count, 2))}
    assert not (tmp_path / "s" / "commitlog").exists()
    assert findings(tmp_path / "s", conf_of(tmp_path, text)) == []


def test_read_only_folders_get_no_files(tmp_path: Path) -> None:
    first = created(tmp_path, f"storePathCommitLog={tmp_path}/a\n")
    put(first, 30)
    first.close()
    before = log_folders(tmp_path)["a"]
    conf = conf_of(
        tmp_path, f"storePathCommitLog={tmp_path}/b,{tmp_path}/c\nreadOnlyCommitLogStorePaths={tmp_path}/a\n"
    )
    store = MessageStore(tmp_path / "s", conf)
    put(store, 100)
    store.close()
    found = log_folders(tmp_path)
    assert found["a"] == before
    assert all(number % 2 == 0 for number in found["b"])
    assert all(number % 2 == 1 for number in found["c"])
    assert sorted(found["a"] + found["b"] + found["c"]) == list(range(len(before) + len(found["b"]) + len(found["c"])))
    assert findings(tmp_path / "s", conf) == []


def test_full_disks_are_left_out_unless_all_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = {tmp_path / "b"}
    monkeypatch.setattr(WritableStorage, "used_percent", lambda _, folder: 86 if folder in full else 85)
    store = created(tmp_path, f"storePathCommitLog={tmp_path}/a,{tmp_path}/b,{tmp_path}/c\n")
    put(store, 60)
    some = log_folders(tmp_path)
    full |= {tmp_path / "a", tmp_path / "c"}
    put(store, 60)
    store.close()
    assert some["b"] == []
    assert log_folders(tmp_path)["b"]
    assert findings(tmp_path / "s", store.conf) == []


def test_how_full_a_disk_is(tmp_path: Path) -> None:
    storage = WritableStorage(tmp_path)
    assert 0 <= storage.used_percent(tmp_path) <= 100
    assert storage.used_percent(tmp_path / "none") == 0


POOL = "transientStorePoolEnable=true\ntransientStorePoolSize=2\n"


def test_a_pool_writes_the_same(tmp_path: Path) -> None:
    store = created(tmp_path, POOL)
    for start in range(0, 200, 50):  # buffers are used again, and blanks have nothing after them
        put(store, 50)
        store.dispatch()
        assert len(stored(tmp_path / "s")) == start + 50
    store.close()
    assert findings(tmp_path / "s", store.conf) == []
    put(MessageStore(tmp_path / "s", store.conf), 20)


DIE = """
import os, sys
from pathlib import Path
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.kernels.warm_up import cache_where
from tests.support.configured_store import created, put
cache_where(find_cache)
store = created(Path(sys.argv[1]), sys.argv[2])
put(store, 30)
store.log_queue.commit()
put(store, 30)
os._exit(9)
"""


def test_a_crash_loses_only_what_was_not_committed(tmp_path: Path) -> None:
    """The buffer is memory of the process; what was committed is the system's.

    Where no buffer is left, files are written directly.
    """
    assert (
        subprocess.run(
            [sys.executable, "-c", DIE, str(tmp_path), POOL + "mappedFileSizeCommitLog=65536"], check=False
        ).returncode
        == 9
    )
    assert len(stored(tmp_path / "s")) == 30
    assert [finding.code for finding in verify(ReadOnlyStore(tmp_path / "s")).findings if "bad" in finding.code] == []


def test_warm_files_have_their_blocks(tmp_path: Path) -> None:
    store = created(tmp_path, "warmMapedFileEnable=true\nmappedFileSizeCommitLog=65536\n")
    put(store, 1)
    assert (tmp_path / "s" / "commitlog" / f"{0:020d}").stat().st_blocks * 512 >= 65536
    store.close()
    assert findings(tmp_path / "s", store.conf) == []


def test_services_flush_as_broker_conf_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = created(tmp_path, "flushDiskType=SYNC_FLUSH\n" + POOL)
    assert store.conf.writing.pool_size == 0
    flushed: list[int] = []
    monkeypatch.setattr(store, "note_flushed", lambda: flushed.append(store.log_queue.flushed_where))
    with StoreServices(store) as services:
        result = services.put_message(message())
        assert result.append is not None
        assert store.log_queue.flushed_where >= result.append.wrote_offset + result.append.wrote_bytes
    text = "flushIntervalCommitLog=10\nflushCommitLogThoroughInterval=20\nflushCommitLogLeastPages=0\n"
    conf = conf_of(
        tmp_path, text + "commitIntervalCommitLog=30\ncommitCommitLogThoroughInterval=40\ncommitCommitLogLeastPages=5\n"
    )
    assert FlushIntervals.of(conf.writing) == FlushIntervals(0.01, 0.02, 0.03, 0.04, 0, 5)
    assert FlushIntervals.of(BrokerConf().writing) == FlushIntervals()


def test_a_folder_of_the_log_that_is_in_use_is_no_new_store(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f"{0:020d}").write_bytes(b"x")
    with pytest.raises(FileExistsError) as raised:
        created(tmp_path, f"storePathCommitLog={tmp_path}/a\n")
    assert raised.value.filename == str(tmp_path / "a")
