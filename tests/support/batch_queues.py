"""Stores with batch consume queues: one by the real 5.3.3, and those that the engine writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.profile import PROFILE_5_3, Profile
from rmqctl.format.sys_flag import INNER_BATCH
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.conftest import DATA
from tests.support.golden_archive import write_archive
from tests.support.small_store import message

OF_GOLDEN = Geometry(64 * 1024, 1000, 100, 400, batchconsumequeue_file_size=920)
SMALL = Geometry(4096, 200, 10, 40, batchconsumequeue_file_size=460)
SIZES = Geometry(64 * 1024, 1000, 100, 400, consumequeue_ext_file_size=1000, batchconsumequeue_file_size=920)


def golden(into: Path) -> Path:
    """A store of 5.3.3: topics `bcq` (inner batches and single messages) and `bcq-single` have batch consume queues."""
    write_archive(DATA / "queues" / "533-batchcq.tar.xz", into)
    return into / "store"


def with_batch_topics(
    root: Path, topics: list[str], geometry: Geometry, profile: Profile = PROFILE_5_3
) -> MessageStore:
    """A new store whose topics.json says that `topics` have batch consume queues."""
    MessageStore.create(root, PutSettings(profile), geometry).close()
    table = {topic: {"topicName": topic, "attributes": {"queue.type": "BatchCQ"}} for topic in topics}
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return MessageStore(root, geometry=geometry, profile=profile)


def inner_batch(number: int, count: int, **changes: Any) -> MessageExtBrokerInner:
    """A record that stands for `count` messages where its topic can have one, otherwise an ordinary message."""
    made = message(number, **changes)
    if made.topic not in ("bcq", "topic-0"):
        return made
    return made._replace(sys_flag=INNER_BATCH, properties=made.properties | {"INNER_NUM": str(count)})


def put_batches(store: MessageStore) -> None:
    for number in range(600):
        topic, of = f"topic-{number % 2}", number % 3
        batch = inner_batch(number, 1 + number % 7, topic=topic, queue_id=of)
        assert store.put_message(batch if number % 4 == 0 else message(number, topic=topic, queue_id=of)).is_ok
    store.close()
