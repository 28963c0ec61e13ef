"""Stores of our own making with the messages of golden ones, and the real store's answer against our reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.main import run
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.support.golden_store import geometry, host

if TYPE_CHECKING:
    import pytest

PROFILE_OF = {"4.7.1": "4.7", "4.9.7": "4.9", "5.3.3": "5.3"}
WRITTEN_FOR = PROFILE_OF | {"5.5.0": "5.4"}
# V2 records (longtopic) are for 5.x alone
SCENARIOS = [
    "497-basic", "471-batch", "471-ipv6", "497-tx", "497-delay", "497-lmq", "broker-497", "533-longtopic",
    "533-propcrc",
]  # fmt: skip


def written(scenario: str, profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A store of our own making with the scenario's messages: dump of the golden one, appended."""
    golden = unpack(scenario, tmp_path)
    assert run(["dump", str(golden), "--body", "base64", "-o", "jsonl"]) == 0
    lines = tmp_path / "messages.jsonl"
    lines.write_text(capsys.readouterr().out)
    made = tmp_path / "made"
    size = geometry(scenario)
    options = {
        "--profile": profile,
        "--commitlog-file-size": size.commitlog_file_size,
        "--consumequeue-file-size": size.consumequeue_file_size,
        "--index-slots": size.index_slots,
        "--index-entries": size.index_entries,
        "--batch": 5 if scenario == "471-batch" else 1,
    }
    words = [str(word) for pair in options.items() for word in pair]
    crc = ["--property-crc"] if scenario == "533-propcrc" and profile[0] == "5" else []
    assert run(["append", str(made), "--create", *words, *crc, "--from", str(lines), "--with-system-topics"]) == 0
    assert run(["verify", str(made)]) == 0
    capsys.readouterr()
    return made


def assert_the_same(made: Path, answer: dict[str, Any], *, keys: bool = True) -> None:
    """The real store's answer against our own reading of what we wrote; `keys`: what it finds by the index, too."""
    store = ReadOnlyStore(made)
    assert answer["load"] is True
    assert answer["maxPhyOffset"] == store.commit_log.end()[0]
    ours = {key: queue for key, queue in store.queues.items() if not key[0].startswith("%LMQ%")}
    theirs = {(queue["topic"], queue["queueId"]): queue for queue in answer["queues"] if queue["maxOffset"]}
    assert {key for key in theirs if not key[0].startswith("%LMQ%")} == set(ours)
    for key, queue in ours.items():
        units = [[unit.queue_offset, unit.physical_offset, unit.size] for unit in queue.units(0, queue.max_offset)]
        assert (theirs[key]["minOffset"], theirs[key]["maxOffset"]) == (queue.min_offset(0), queue.max_offset)
        assert theirs[key]["entries"] == units
    assert answer["messages"]
    for message in answer["messages"]:
        decoded = store.commit_log.message_at(message["physicalOffset"])
        assert decoded is not None
        assert (decoded.topic, decoded.queue_offset, decoded.msg_id) == (
            message["topic"],
            message["queueOffset"],
            message["msgId"],
        )
        assert (decoded.body_crc, decoded.flag, decoded.sys_flag) == (
            message["bodyCrc"],
            message["flag"],
            message["sysFlag"],
        )
        if not message["cqTopic"].startswith("%LMQ%"):
            assert decoded.properties == message["properties"]
        assert host(str(decoded.born_host)) == host(message["bornHost"])
    assert answer["keyQueries"]
    for asked in answer["keyQueries"] if keys else ():
        # the real store gives what has the key's hash: by chance another message, too, since its UNIQ_KEY is random
        same_hash = store.index.phy_offsets(asked["topic"], asked["key"])
        assert same_hash[-asked["max"] :] == asked["physicalOffsets"]
        with_key = [message.physical_offset for message in store.by_key(asked["topic"], asked["key"])]
        assert with_key == [offset for offset in same_hash if (asked["topic"], asked["key"]) in names_at(store, offset)]


def names_at(store: ReadOnlyStore, offset: int) -> set[tuple[str, str]]:
    """The message's topic with each of its keys."""
    message = store.commit_log.message_at(offset)
    assert message is not None
    properties = message.properties
    return {(message.topic, key) for key in (properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")) if key}
