"""A log of which two brokers wrote a part each is one cause."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path

import pytest

from rmqctl.forensics.doctor.joined_logs import find_joint
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, unpack
from tests.support.file_edits import overwrite
from tests.support.mirror_log import log_file_bytes
from tests.support.small_store import stored as messages

SIZE = 65536
QUEUE_OFFSET = 20  # where QUEUEOFFSET is in a record


def joined(one: Path, other: Path, at: int, into: Path, *, queues: Path) -> Path:
    """The log of `one` up to `at`, then that of `other`; the rest of `queues`."""
    shutil.copytree(queues, into)
    shutil.rmtree(into / "commitlog")
    (into / "commitlog").mkdir()
    data = log_file_bytes(one)[:at] + log_file_bytes(other)[at:]
    for begin in range(0, len(data), SIZE):
        (into / "commitlog" / f"{begin:020d}").write_bytes(data[begin : begin + SIZE])
    return into


@pytest.mark.parametrize(
    ("base", "place"),
    [("497-basic", "file"), ("497-basic", "record"), ("497-basic", "middle"), ("533-crash", "middle")],
)
def test_the_joint_of_two_logs_is_one_cause(base: str, place: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    one, other = unpack(base, tmp_path / "one"), unpack("471-basic", tmp_path / "other")
    record = messages(one)[150]
    at = {"file": 2 * SIZE, "record": record.physical_offset, "middle": record.physical_offset + 77}[place]
    queues = one if place == "record" else other
    store = joined(one, other, at, tmp_path / "store", queues=queues)
    (store / "abort").unlink(missing_ok=True)
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    begin = record.physical_offset if place == "middle" else at
    assert (cause["code"], cause["next"]) == ("logs-joined", f"rmqctl truncate {store} --to {begin} --dry-run")
    assert rmqctl("truncate", store, "--to", begin, "--dry-run").code in (0, 1)


def stored(root: Path, count: int, seed: int, rmqctl: Rmqctl, *options: str) -> None:
    rng = random.Random(seed)
    lines = (
        {"topic": rng.choice(["orders", "events"]), "queueId": rng.randrange(3), "body": "x" * rng.randrange(50, 900)}
        for _ in range(count)
    )
    text = root.with_suffix(".jsonl")
    text.write_text("".join(f"{json.dumps(line | {'bodyEncoding': 'utf8'})}\n" for line in lines))
    assert rmqctl("append", root, "--from", text, *options).code == 0


def test_an_old_master_that_came_back_as_a_slave(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """DefaultHA sends it the new master's bytes from its own end on."""
    master, slave = tmp_path / "master", tmp_path / "slave"
    stored(master, 150, 1, rmqctl, "--create", "--profile", "4.9", "--commitlog-file-size", str(SIZE))
    shutil.copytree(master, slave)
    stored(master, 60, 2, rmqctl)
    stored(slave, 160, 3, rmqctl)
    last = messages(master)[-1]
    at = last.physical_offset + last.size
    store = joined(master, slave, at, tmp_path / "store", queues=master)
    (cause,) = rmqctl("doctor", store, "-o", "json").document()["causes"]
    assert (cause["code"], cause["next"]) == ("logs-joined", f"rmqctl truncate {store} --to {at} --dry-run")


def test_numbers_that_a_broker_gives_again_after_a_start_are_no_joint(tmp_path: Path) -> None:
    """It counts from its queues: where these are behind, many go back."""
    store = unpack("497-basic", tmp_path)
    for message in messages(store)[200:]:
        overwrite(store, message.physical_offset + QUEUE_OFFSET, struct.pack(">q", message.queue_offset - 1))
    assert find_joint(ReadOnlyStore(store), 1) is None
