"""What a trace by key reads: the index for all topics at once, and the folders of few topics."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rmqctl.forensics.trace.key_search import KeySearch
from rmqctl.forensics.trace.log_scan import LogScan
from rmqctl.forensics.trace.trace import Question, Trace
from rmqctl.format.index_entry import key_hash
from rmqctl.format.message import Message
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl
from tests.support.listed_folders import watch_listings


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

    def note(folder: Path) -> None:
        if folder.parent.name == "consumequeue":
            listed.add(folder.name)

    watch_listings(monkeypatch, note)
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


def test_each_message_of_many_with_one_key_gets_its_own_records(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """If each got those of all, a trace of N messages would take N * N steps."""
    lines = [
        {"topic": "T", "body": "x", "properties": {"KEYS": f"same k{number}", "UNIQ_KEY": f"U{number}"}}
        for number in range(60)
    ]
    messages, conf = tmp_path / "messages.jsonl", tmp_path / "broker.conf"
    messages.write_text("\n".join(map(json.dumps, lines)))
    conf.write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    words = ["--create", "--profile", "4.9", "--broker-conf", conf, "--from", messages]
    assert rmqctl("append", tmp_path / "store", *words).code == 0
    with closing(ReadOnlyStore(tmp_path / "store", read_broker_conf(conf))) as store:
        search = KeySearch(LogScan(store, 0, threads=1, warm_up=lambda: None), by_scan=False)
        assert len(search.records("same")) == 60
        assert [len(search.records_of_message(f"U{number}", "same")) for number in range(60)] == [1] * 60
