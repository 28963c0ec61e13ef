"""What a trace by key reads: the index for all topics at once, and the folders of few topics."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.forensics.trace.trace import Question, Trace
from rmqctl.format.index_entry import key_hash
from rmqctl.format.message import Message
from rmqctl.logfile.system.storage import Entry, Storage
from rmqctl.store.read.read_only_store import ReadOnlyStore


def places(store: ReadOnlyStore, question: Question) -> list[tuple[str | None, list[int]]]:
    """(UNIQ_KEY, physical offsets of the stages) of each message that answers a question."""
    trace = Trace([store], question, threads=1, warm_up=lambda: None)
    return [(life.unique_key, [stage.record.message.physical_offset for stage in life.stages]) for life in trace.lives]


def forget(root: Path, hash_of_key: int, physical_offset: int) -> int:
    """Give the index entries of a key and a record another hash; returns how many there were."""
    count = 0
    for path in (root / "index").iterdir():
        data, entry = path.read_bytes(), struct.pack(">iq", hash_of_key, physical_offset)
        count += data.count(entry)
        path.write_bytes(data.replace(entry, struct.pack(">iq", 2**31 - 1 - hash_of_key, physical_offset)))
    return count


def test_a_trace_lists_only_the_queues_of_the_message(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ReadOnlyStore(golden("broker-533"))
    messages = (item for item in store.commit_log.scan() if isinstance(item, Message))
    message = next(one for one in messages if "UNIQ_KEY" in one.properties)
    listed: set[str] = set()
    real = Storage.listing

    def listing(self: Storage, folder: Path) -> list[Entry]:
        if folder.parent.name == "consumequeue":
            listed.add(folder.name)
        return real(self, folder)

    monkeypatch.setattr(Storage, "listing", listing)
    assert places(store, Question(unique_key=message.properties["UNIQ_KEY"]))
    assert listed == {message.topic}
    assert len(store.queue_topics) > 1


@pytest.mark.parametrize("lost", ["UNIQ_KEY", "KEYS"])
def test_a_record_is_found_by_either_key_in_the_index(lost: str, golden: Callable[[str], Path]) -> None:
    """Of a delayed message and its delivery, the index has lost one entry by UNIQ_KEY or by KEYS."""
    root = golden("broker-533")
    store = ReadOnlyStore(root)
    messages = (item for item in store.commit_log.scan() if isinstance(item, Message))
    message = next(one for one in messages if one.topic == "SCHEDULE_TOPIC_XXXX" and "KEYS" in one.properties)
    key = message.properties["KEYS"].split()[0]
    whole = places(store, Question(key=key))
    assert message.physical_offset in whole[0][1]
    hash_of_key = key_hash(message.topic, message.properties["UNIQ_KEY"] if lost == "UNIQ_KEY" else key)
    assert forget(root, hash_of_key, message.physical_offset) == 1
    assert places(ReadOnlyStore(root), Question(key=key)) == whole
