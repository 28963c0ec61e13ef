"""A store that is written to while the system fails: everything the engine can do, and what must be left of it
afterwards.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from rmqctl.errors import NeedsRecovery, NotAStore
from rmqctl.forensics.verify import verify
from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.format.message import Blank, Damage, Message
from rmqctl.format.profile import PROFILE_4_9
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.logfile.memory import allocate
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.write.commit_log_writer import PutSettings
from rmqctl.store.write.put_message import PutMessageResult
from tests.support.faulty_system import Crashed, FaultySystem, open_descriptors
from tests.support.small_store import message

SETTINGS = PutSettings(PROFILE_4_9, multi_dispatch=True)
# what an end that is not in order explains, the log's own end aside: queues and index after the log, or half written
UNCLEAN = {
    "abort", "missing-unit", "unit-behind-end", "checkpoint-missing", "checkpoint-length",
    "index-missing", "index-header", "index-chain", "index-dangling", "index-order", "index-time",
}  # fmt: skip
# with these no broker loads it, or it loses what comes after
NOT_LOADED = {"file-length", "file-gap", "file-overlap", "foreign-file", "log-missing"}

# no put since the checkpoint was lost: a broker's abnormal recovery then reads the whole log
ONLY_SLOW = {"checkpoint-missing", "checkpoint-behind"}
NO_UNIT = (TransactionType.PREPARED, TransactionType.ROLLBACK)


class Kept(NamedTuple):
    """A message that was acknowledged, and where it must be: offsets in bytes and units; in a queue unless prepared or
    rolled back.
    """

    in_queue: bool
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes


class Written:
    """Puts through a store, and what it said of them.

    `flushed` of the `acknowledged` messages are on the disk, as far as the store said so. `in_doubt` are the bodies of
    the puts since the last good one: it said nothing of them, or that they failed. `broken`: a flush or dispatch
    failed, so that nothing may be acknowledged any more.
    """

    def __init__(self) -> None:
        self.acknowledged: list[Kept] = []
        self.flushed = 0
        self.in_doubt: list[list[bytes]] = []
        self.refused = 0
        self.broken = False
        self.end = 0
        self._number = 0

    def open(self, root: Path, geometry: Geometry) -> MessageStore | None:
        """The store, new or continued; None: it did not open, for a reason that it may have."""
        try:
            is_new = not root.exists()
            store = (
                MessageStore.create(root, SETTINGS, geometry)
                if is_new
                else MessageStore(root, settings=SETTINGS, geometry=geometry)
            )
        except (OSError, NeedsRecovery):
            return None
        except NotAStore:
            assert not (root / "commitlog").exists()
            return None
        self.broken = False
        return store

    def next_message(self, size: int, **changes: Any) -> MessageExtBrokerInner:
        """A message unlike all others."""
        self._number += 1
        return message(self._number, body=f"{self._number}:".encode().ljust(size, b"x"), **changes)

    def put(self, store: MessageStore, *messages: MessageExtBrokerInner) -> PutMessageResult:
        """Put a message, or a batch."""
        self.in_doubt.append([each.body for each in messages])
        result = store.put_message(messages[0]) if len(messages) == 1 else store.put_messages(messages)
        appended = result.append
        if appended is None:
            self.refused += 1
            assert result.remark
            return result
        assert not self.broken
        step = 1 if appended.takes_offset else 0
        self.acknowledged += [
            Kept(
                appended.takes_offset,
                appended.topic,
                appended.queue_id,
                appended.logics_offset + step * number,
                offset,
                each.body,
            )
            for number, (each, offset) in enumerate(zip(messages, appended.physical_offsets, strict=True))
        ]
        self.end = appended.wrote_offset + appended.wrote_bytes
        self.in_doubt = []
        return result

    def attempt(self, do: Callable[[], None], *, flushes: bool = False) -> None:
        """Something that may fail with an OSError; a store is not to be trusted with more after that."""
        acknowledged = len(self.acknowledged)
        try:
            do()
        except OSError:
            self.broken = True
        else:
            self.flushed = acknowledged if flushes else self.flushed


class Inline(Executor):
    """Does things at once, so that calls come in the same order every time."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, do: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(do(*arguments, **options))
        except BaseException as error:  # noqa: BLE001 -- as an executor does
            done.set_exception(error)
        return done


def write_everything(
    root: Path, written: Written, geometry: Geometry, *, puts: int, size: int, sync: bool = False
) -> None:
    """Every kind of message in two sessions, so that log, queues and index roll; bodies of up to `size` bytes."""
    with patch.object(allocate, "ThreadPoolExecutor", Inline):
        for session in range(2):
            store = written.open(root, geometry)
            if store is None:
                continue
            for number in range(session * puts // 2, (session + 1) * puts // 2):
                _put_one(store, written, number, number * 37 % size)
                if sync or number % 5 == 4:
                    written.attempt(store.flush_log, flushes=True)
                if number % 7 == 6:
                    written.attempt(store.dispatch)
                if number % 11 == 10:
                    written.attempt(store.flush, flushes=True)
            written.attempt(store.close, flushes=True)


def _put_one(store: MessageStore, written: Written, number: int, size: int) -> None:
    match number % 8:
        case 1:
            written.put(store, *(written.next_message(size // 3, queue_id=0) for _ in range(3)))
        case 2:
            written.put(store, written.next_message(size, properties={"DELAY": "3", "KEYS": f"late{number}"}))
        case 3:
            written.put(store, written.next_message(size, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))
        case 4 | 5 | 6:
            written.put(store, written.next_message(size, sys_flag=number % 8 % 3 * 4 + 4))
        case _:
            written.put(store, written.next_message(size))


def log_of(root: Path) -> tuple[list[Kept], list[Damage]]:
    """The messages of a store's log up to the first damage, and all damage."""
    found, damages = [], []
    with closing(ReadOnlyStore(root)) as store:
        for item in store.commit_log.scan():
            if isinstance(item, Damage):
                damages.append(item)
            elif isinstance(item, Message) and not damages:
                in_queue = transaction_type(item.sys_flag) not in NO_UNIT
                found.append(
                    Kept(in_queue, item.topic, item.queue_id, item.queue_offset, item.physical_offset, bytes(item.body))
                )
    return found, damages


def findings_of(root: Path) -> set[str]:
    """The codes of what verify finds."""
    with closing(ReadOnlyStore(root)) as store:
        return {finding.code for finding in verify(store).findings}


def assert_whole(root: Path, written: Written, *, power_failed: bool = False) -> None:
    """A store that nobody has open: what was acknowledged (flushed, where the power failed) is in its place, in order.

    Behind it comes nothing but what was acknowledged and not flushed, and a put that was in doubt, each as far as it
    got.
    """
    must = written.acknowledged[: written.flushed] if power_failed else written.acknowledged
    may = written.acknowledged[len(must) :]
    try:
        codes = findings_of(root)
    except NotAStore:  # it did not come to be a store
        assert not must
        return
    messages, damages = log_of(root)
    assert messages[: len(must)] == must
    more = messages[len(must) :]
    assert more[: len(may)] == may[: len(more)]
    beyond = [message.body for message in more[len(may) :]]
    assert not beyond or beyond in [bodies[: len(beyond)] for bodies in written.in_doubt]
    if (root / "abort").exists():
        assert all(damage.physical_offset >= end_of(messages) for damage in damages)
        assert not codes & NOT_LOADED
        assert power_failed or codes <= UNCLEAN | {damage.code for damage in damages}
    else:
        assert codes <= ONLY_SLOW, codes
        assert_dense(root)


def end_of(messages: list[Kept]) -> int:
    """Where the last message begins; 0 without one."""
    return messages[-1].physical_offset if messages else 0


def assert_dense(root: Path) -> None:
    """The queue offsets of each queue in log order are 0, 1, 2..., light queues included; records lie side by side."""
    queues = defaultdict(list)
    end = 0
    with closing(ReadOnlyStore(root)) as store:
        items = list(store.commit_log.scan())
    for item in items:
        assert not isinstance(item, Damage)
        assert item.physical_offset == end
        end = item.end
        if isinstance(item, Blank):
            continue
        for target in queue_destinations(item):
            queues[target.topic, target.queue_id].append(target.queue_offset)
        if transaction_type(item.sys_flag) in NO_UNIT:
            assert item.queue_offset == 0
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())


def recover(root: Path) -> None:
    """What a broker's abnormal recovery comes to, as a model: the log ends before its first damage; queues and index
    are rebuilt.
    """
    end = 0
    with closing(ReadOnlyStore(root)) as store:
        for item in store.commit_log.scan(strict=True):
            end = end if isinstance(item, Damage) else item.end
    for file in store.commit_log.queue.files:
        if file.file_from_offset > end:
            file.path.unlink()
        elif end < file.end:
            data = file.path.read_bytes()
            used = end - file.file_from_offset
            file.path.write_bytes(data[:used] + bytes(len(data) - used))
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part, ignore_errors=True)
    for part in ("checkpoint", "abort"):
        (root / part).unlink(missing_ok=True)


def assert_goes_on(root: Path, geometry: Geometry) -> None:
    """The store opens, or says in one line that it needs recovery and opens then; it loses nothing, takes a message,
    and is whole.
    """
    if not (root / "commitlog").exists():
        with pytest.raises(NotAStore):
            MessageStore(root, settings=SETTINGS, geometry=geometry)
        return
    if (root / "abort").exists():
        with pytest.raises(NeedsRecovery, match=r"^[^\n]*$"):
            MessageStore(root, settings=SETTINGS, geometry=geometry)
        recover(root)
    before = log_of(root)[0]
    store = MessageStore(root, settings=SETTINGS, geometry=geometry)
    assert store.put_message(message(0, body=b"one more")).is_ok
    store.close()
    assert_dense(root)
    assert findings_of(root) == set()
    assert log_of(root)[0][: len(before)] == before


def written_with(
    system: FaultySystem, written: Written, geometry: Geometry, *, puts: int, size: int, sync: bool
) -> None:
    """Write everything while `system` fails; no descriptor is left open but by a process that is gone."""
    before = open_descriptors()
    with system:
        try:
            write_everything(system.root, written, geometry, puts=puts, size=size, sync=sync)
        except Crashed:
            system.end_process(before)
    assert open_descriptors() <= before
