"""Extensions, batch consume queues, several log folders: we and the real RocketMQ go on with what the other left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.forensics.verify import verify
from rmqctl.format.profile import PROFILES
from rmqctl.store.config.broker_conf import BrokerConf, read_broker_conf
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings, put_settings
from tests.interop.readings import for_harness
from tests.interop.written_stores import PROFILE_OF, WRITTEN_FOR, assert_the_same
from tests.real_store.harness import RealRocketMQ
from tests.support.batch_queues import SIZES, put_batches, with_batch_topics
from tests.support.small_store import findings, message

pytestmark = pytest.mark.interop

REAL_SIZES = for_harness(SIZES)
WITH_EXT = BrokerConf(consumequeue_ext_enabled=True)
SETTINGS = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": str(SIZES.consumequeue_ext_file_size)}


def put(store: MessageStore) -> None:
    for number in range(600):
        assert store.put_message(message(number, topic=f"topic-{number % 2}", queue_id=number % 3)).is_ok
    store.close()


@pytest.mark.parametrize("version", WRITTEN_FOR)
def test_extensions_in_turn(version: str, tmp_path: Path) -> None:
    root = tmp_path / "s"
    real = RealRocketMQ(version)
    put(MessageStore.create(root, PutSettings(PROFILES[WRITTEN_FOR[version]]), SIZES, WITH_EXT))
    for _ in range(2):
        real.put(root, 700, geometry=REAL_SIZES, topics=2, settings=SETTINGS)
        assert findings(root) == []
        put(MessageStore(root, geometry=SIZES))
        assert findings(root) == []
    assert max(len(extension.queue.files) for extension in ReadOnlyStore(root).extensions.values()) > 5
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert_the_same(root, real.read(copy, start=True, geometry=REAL_SIZES, settings=SETTINGS))


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_batch_consume_queues_in_turn(version: str, tmp_path: Path) -> None:
    root = tmp_path / "s"
    real = RealRocketMQ(version)
    settings = {"mapperFileSizeBatchConsumeQueue": str(SIZES.batchconsumequeue_file_size)}
    put_batches(with_batch_topics(root, ["topic-0"], SIZES, PROFILES[WRITTEN_FOR[version]]))
    for _ in range(2):
        real.put(root, 700, geometry=REAL_SIZES, topics=2, settings=settings)
        assert findings(root) == []
        put_batches(MessageStore(root, geometry=SIZES))
        assert findings(root) == []
    queues = ReadOnlyStore(root).queues
    assert {key[0] for key, queue in queues.items() if isinstance(queue, BatchConsumeQueue)} == {"topic-0"}
    assert queues["topic-0", 0].max_offset > 900
    assert max(len(queue.queue.files) for queue in queues.values()) > 5
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert_the_same(root, real.read(copy, start=True, geometry=REAL_SIZES, settings=settings))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])  # since 4.9.2
def test_several_log_folders_in_turn(version: str, tmp_path: Path) -> None:
    root = tmp_path / "s"
    folders = f"{tmp_path}/b,{tmp_path}/a,{tmp_path}/c"
    settings = {"storePathCommitLog": folders, "transientStorePoolEnable": "true"}
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in {**settings, **REAL_SIZES.broker_conf()}.items()))
    conf = read_broker_conf(path)
    real = RealRocketMQ(version)
    put(MessageStore.create(root, put_settings(conf, PROFILES[PROFILE_OF[version]]), SIZES, conf))
    real.put(root, 1500, geometry=REAL_SIZES, topics=2, settings=settings)
    assert verify(ReadOnlyStore(root, conf)).findings == []
    put(MessageStore(root, conf))
    store = ReadOnlyStore(root, conf)
    assert verify(store).findings == []
    assert len(store.commit_log.queue.files) > 6
    for file in store.commit_log.queue.files:
        assert file.path.parent.name == "abc"[file.file_from_offset // SIZES.commitlog_file_size % 3]
    assert real.load(root, geometry=REAL_SIZES, settings=settings).loaded
