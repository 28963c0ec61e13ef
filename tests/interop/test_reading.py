"""getMessage, getOffsetInQueueByTime and queryMessage of the real store and of ours, on the same stores: the same
answers.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.format.profile import PROFILES, Profile
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.file_sizes import Geometry as Sizes
from rmqctl.store.engine.message_store import MessageStore, now_ms
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.serve.message_reader import TIME_MAX, MessageReader
from rmqctl.store.serve.subscription import Subscription
from rmqctl.store.write.commit_log_writer import PutSettings
from tests.interop.readings import about, for_harness
from tests.real_store.harness import RealRocketMQ
from tests.support.reading_store import BEGIN, DAMAGES, LARGE, RAISED, SMALL, STEP_MS, WHOLE, damage, write
from tests.support.small_store import message

pytestmark = pytest.mark.interop

VERSIONS = {"4.7.1": "4.7", "4.9.7": "4.9", "5.3.3": "5.3"}
QUEUES = [
    ("OrderPaid", 0),
    ("OrderPaid", 1),
    ("OrderPaid", 2),
    ("Old", 0),
    ("Big", 0),
    ("Few", 0),
    ("Empty", 0),
    ("Unknown", 7),
]
TAGS = ["*", "Tag1", "Tag0 || Tag2", "TagX"]
STORED = 1080 // 2
Question = tuple[str | int, ...]


def gets(reader: MessageReader) -> list[Question]:
    """Each queue's borders and middle, with every number of messages and every filter."""
    questions: list[Question] = []
    for topic, queue_id in QUEUES:
        low, high = reader.get_min_offset_in_queue(topic, queue_id), reader.get_max_offset_in_queue(topic, queue_id)
        offsets = {
            -5,
            -1,
            0,
            1,
            3,
            10,
            19,
            20,
            low - 1,
            low,
            low + 1,
            (low + high) // 2,
            high - 1,
            high,
            high + 1,
            high + 1000,
        }
        offsets |= set(range(0, high, 17))
        questions += [("get", topic, queue_id, offset, 32, "*") for offset in sorted(offsets)]
        few = (low, (low + high) // 2, high - 1)
        questions += [
            ("get", topic, queue_id, offset, most, tags) for offset in few for most in (0, 1, 5, 1000) for tags in TAGS
        ]
    return questions


def times() -> list[Question]:
    end = BEGIN + STORED * STEP_MS
    around = [BEGIN + step * STEP_MS + shift for step in range(0, STORED, 31) for shift in (-1, 0, 1, STEP_MS // 2)]
    at = [0, 1, BEGIN - STEP_MS, end, end + 86_400_000, *around]
    return [("time", topic, queue_id, time) for topic, queue_id in QUEUES for time in at]


def queries() -> list[Question]:
    keys = ["k0", "k8", "k500", "u3", "u0", "u9", f"{8:032X}", "no such key"]
    middle = BEGIN + STORED // 2 * STEP_MS
    spans = [(0, TIME_MAX), (middle, TIME_MAX), (0, middle), (middle, middle), (middle - 5000, middle + 5000), (0, 1)]
    return [
        ("query", topic, key, most, *span)
        for topic in ("OrderPaid", "Big", "Unknown")
        for key in keys
        for most in (1, 20, 64, 100)
        for span in spans
    ]


def ours(reader: MessageReader, question: Question) -> Any:
    kind, *words = question
    if kind == "get":
        topic, queue_id, offset, most, tags = words
        result = reader.get_message(str(topic), int(queue_id), int(offset), int(most), Subscription(str(tags)))
        return {
            "status": result.status.value,
            "nextBeginOffset": result.next_begin_offset,
            "minOffset": result.min_offset,
            "maxOffset": result.max_offset,
            "physicalOffsets": [message.physical_offset for message in result.messages],
        }
    if kind == "time":
        return reader.get_offset_in_queue_by_time(str(words[0]), int(words[1]), int(words[2]))
    topic, key, most, begin, end = words
    return [
        message.physical_offset
        for message in reader.query_message(str(topic), str(key), int(most), int(begin), int(end))
    ]


CASES = [("small", SMALL, how) for how in DAMAGES] + [("large", LARGE, how) for how in (WHOLE, RAISED)]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers(version: str, tmp_path: Path) -> None:
    """Whole, damaged, of large files; and where we delivered delayed messages."""
    profile = PROFILES[VERSIONS[version]]
    stores = {}
    for name, sizes, how in CASES:
        root = tmp_path / f"{name} {how}"
        write(root, profile, sizes)
        damage(root, how)
        stores[root] = sizes, reader_of(root, profile, sizes)
    delivered = with_delivered_messages(tmp_path / "delivered", profile)
    stores[delivered] = SMALL, MessageReader(ReadOnlyStore(delivered), profile)
    asked = []
    for root, (sizes, reader) in stores.items():
        copy = shutil.copytree(root, root.with_name(f"{root.name} copy"))
        questions = OF_DELIVERED if root == delivered else gets(reader) + times() + queries()
        asked.append((copy, for_harness(sizes), questions))
    answers = RealRocketMQ(version, timeout=600).ask_all(asked)
    for (root, (_, reader)), (*_, questions), theirs in zip(stores.items(), asked, answers, strict=True):
        with about(root.name):
            mine = [ours(reader, question) for question in questions]
            triples = zip(questions, mine, theirs, strict=True)
            assert [(question, we, they) for question, we, they in triples if we != they] == []
            if root != delivered:
                assert len({answer["status"] for answer in mine if isinstance(answer, dict)}) >= 5
    tagged_messages_were_found(answers[-1])


def reader_of(root: Path, profile: Profile, sizes: Sizes) -> MessageReader:
    conf = BrokerConf(
        commitlog_file_size=sizes.commitlog_file_size, consumequeue_file_size=sizes.consumequeue_file_size
    )
    return MessageReader(ReadOnlyStore(root, conf), profile)


OF_DELIVERED: list[Question] = [("get", "OrderPaid", queue_id, 0, 32, "Tag1") for queue_id in range(3)]


def with_delivered_messages(root: Path, profile: Profile) -> Path:
    """Delayed messages come to their queues, tags and all, as if the broker had delivered them; it goes on where we
    were.
    """
    store = MessageStore.create(root, PutSettings(profile), SMALL)
    for number in range(60):
        delayed = {"TAGS": f"Tag{number % 3}", "KEYS": f"k{number}", "DELAY": str(number % 4 + 1)}
        assert store.put_message(message(number, properties=delayed)).is_ok
    store.dispatch()
    service = store.schedule_message_service()
    assert service.deliver_due(now_ms() + 86_400_000) == 60
    service.persist()
    store.close()
    return root


def tagged_messages_were_found(answers: list[dict[str, Any]]) -> None:
    """Those of the first ten units: Tag1 is the second queue's."""
    assert [answer["maxOffset"] for answer in answers] == [20, 20, 20]
    assert [len(answer["physicalOffsets"]) for answer in answers] == [0, 10, 0]
