"""A log with its queues, generated, by default of 4 GiB.

The bodies have 1 KiB; each record has its own offsets and the checksum of its body, and no keys.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rmqctl.format.properties import hash_code
from tests.support.log_maker import BLANK, Record, encode

FILES, FILE_SIZE = 4, 1 << 30
BODY_SIZE = 1024
QUEUES, TOPICS = 4, 10
MESSAGE_MS = 1  # between two messages, where they have times of their own
TAG = "TagA"
BLANK_SIZE = 8
CHECKPOINT_SIZE = 4096
DIGITS = 16  # the last of the 32 of a UNIQ_KEY
UNIT_SIZE, UNITS = 20, 300_000
# where they are in a record
QUEUE_ID, QUEUE_OFFSET, PHYSICAL_OFFSET, STORE_TIMESTAMP = 12, 20, 28, 56
TOPIC_DIGIT = 88 + BODY_SIZE + len(Record().topic)


def large_log(
    work: Path,
    name: str = "large-log",
    files: int = FILES,
    file_size: int = FILE_SIZE,
    *,
    unique: bool = False,
    mixed: bool = False,
) -> Path:
    """The store; made once.

    With `unique`, each message has a UNIQ_KEY of its own. With `mixed`, there are 10 topics, and each message is
    stored 1 ms after the one before it.
    """
    store = work / name
    if not store.exists():
        print(f"bench: {store} is generated", file=sys.stderr, flush=True)
        making = work / f"{name}.making"
        shutil.rmtree(making, ignore_errors=True)
        (making / "commitlog").mkdir(parents=True)
        log = making / "commitlog"
        offsets = np.concatenate(
            [
                _write_file(log / f"{number * file_size:020d}", number, file_size, unique=unique, mixed=mixed)
                for number in range(files)
            ]
        )
        size = len(_record(unique=unique))
        topics = _topics(mixed=mixed)
        for number, topic in enumerate(topics):
            _write_queues(making / "consumequeue" / topic, offsets, size, number, len(topics))
        last = Record().store_timestamp + mixed * MESSAGE_MS * (len(offsets) - 1)
        (making / "checkpoint").write_bytes(struct.pack(">qqq", *3 * [last]).ljust(CHECKPOINT_SIZE, b"\0"))
        making.rename(store)
    return store


def _topics(*, mixed: bool) -> list[str]:
    topic = Record().topic
    return [f"{topic[:-1]}{number}" for number in range(TOPICS)] if mixed else [topic]


def _write_file(path: Path, number: int, file_size: int, *, unique: bool, mixed: bool) -> npt.NDArray[np.int64]:
    """A file of the log; the physical offsets of its messages."""
    record = np.frombuffer(_record(unique=unique), np.uint8)
    count = (file_size - BLANK_SIZE) // len(record)
    messages = np.arange(number * count, (number + 1) * count)
    offsets = number * file_size + np.arange(count) * len(record)
    records = np.tile(record, (count, 1))
    topics = len(_topics(mixed=mixed))
    fields = [
        (QUEUE_ID, (messages % QUEUES).astype(">i4")),
        (QUEUE_OFFSET, (messages // (QUEUES * topics)).astype(">i8")),
        (PHYSICAL_OFFSET, offsets.astype(">i8")),
    ]
    if mixed:
        fields.append((STORE_TIMESTAMP, (Record().store_timestamp + messages * MESSAGE_MS).astype(">i8")))
        fields.append((TOPIC_DIGIT, (messages // QUEUES % topics + ord("0")).astype(np.uint8)))
    for at, values in fields:
        records[:, at : at + values.itemsize] = values.view(np.uint8).reshape(count, -1)
    if unique:  # the key is the last property
        digits = messages[:, None] // 10 ** np.arange(DIGITS)[::-1] % 10 + ord("0")
        records[:, len(record) - 1 - DIGITS : len(record) - 1] = digits.astype(np.uint8)
    room = file_size - records.nbytes
    with path.open("wb") as file:
        file.write(records.data)
        file.write(struct.pack(">iI", room, BLANK) + bytes(room - BLANK_SIZE))
    return offsets


def _record(*, unique: bool) -> bytes:
    body = np.random.default_rng(1).bytes(BODY_SIZE)
    key = f"UNIQ_KEY\x01{'0' * 32}\x02" if unique else ""
    return encode(Record(body=body, properties=f"TAGS\x01{TAG}\x02{key}".encode()), 0)


def _write_queues(folder: Path, offsets: npt.NDArray[np.int64], size: int, topic: int, topics: int) -> None:
    for queue in range(QUEUES):
        mine = offsets[topic * QUEUES + queue :: topics * QUEUES]
        units = np.zeros(len(mine), [("physicalOffset", ">i8"), ("size", ">i4"), ("tagsCode", ">i8")])
        units["physicalOffset"], units["size"], units["tagsCode"] = mine, size, hash_code(TAG)
        (folder / str(queue)).mkdir(parents=True)
        for begin in range(0, len(units), UNITS):
            part = units[begin : begin + UNITS].tobytes()
            with (folder / str(queue) / f"{begin * UNIT_SIZE:020d}").open("wb") as file:
                file.write(part)
                file.truncate(UNITS * UNIT_SIZE)  # the rest is a hole, as in a broker's file
