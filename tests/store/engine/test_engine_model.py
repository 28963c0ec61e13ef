"""Random operations, failures, crashes and power failures: the engine against a dict of lists."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from rmqctl.format.encode import MessageExtBrokerInner
from rmqctl.logfile.memory import allocate
from rmqctl.store.config.topics import SCHEDULE_TOPIC, QueueKey
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.faulty_system import ERRORS, Crashed, Fault, FaultySystem, open_descriptors
from tests.support.property_settings import PROPERTY
from tests.support.small_store import SMALL
from tests.support.written_under_faults import (
    ONLY_SLOW,
    Inline,
    Written,
    assert_dense,
    assert_whole,
    findings_of,
    log_of,
    recover,
)

TOPIC = "OrderPaid"
SIZES = st.integers(0, 900)
# how a message differs -> the queues that it comes to (its own one aside, where it takes no offset)
KINDS: dict[str, tuple[dict[str, Any], list[QueueKey]]] = {
    "plain": ({}, [(TOPIC, 1)]),
    "other queue": ({"queue_id": 2}, [(TOPIC, 2)]),
    "delayed": ({"properties": {"DELAY": "3"}}, [(SCHEDULE_TOPIC, 2)]),
    "light": ({"properties": {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}}, [(TOPIC, 1), ("%LMQ%a", 0), ("%LMQ%b", 0)]),
    "prepared": ({"sys_flag": 4}, []),
    "commit": ({"sys_flag": 8}, [(TOPIC, 1)]),
    "rollback": ({"sys_flag": 12}, []),
}


class StoreMachine(RuleBasedStateMachine):
    """`queues` is the model: the bodies of each queue, by queue offset."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.inline = patch.object(allocate, "ThreadPoolExecutor", Inline)
        self.inline.start()
        self.descriptors = open_descriptors()
        self.written = Written()
        self.queues: dict[QueueKey, list[bytes]] = defaultdict(list)
        self.queues_of: dict[bytes, list[QueueKey]] = {}
        self.lives = 0
        self.root = self.folder / "0"
        self.open()

    def open(self) -> None:
        self.system = FaultySystem(self.root)
        self.system.__enter__()
        store = self.written.open(self.root, SMALL)
        assert store is not None
        self.store: MessageStore = store

    @rule(kind=st.sampled_from(sorted(KINDS)), size=SIZES)
    def put(self, kind: str, size: int) -> None:
        changes, keys = KINDS[kind]
        self.put_all([self.written.next_message(size, **({"queue_id": 1} | changes))], keys)

    @rule(sizes=st.lists(SIZES, min_size=2, max_size=4))
    def put_batch(self, sizes: list[int]) -> None:
        self.put_all([self.written.next_message(size, queue_id=1) for size in sizes], [(TOPIC, 1)])

    def put_all(self, messages: list[MessageExtBrokerInner], keys: list[QueueKey]) -> None:
        self.queues_of |= {message.body: keys for message in messages}
        result = self.written.put(self.store, *messages)
        if result.append is None:
            assert self.system.at or self.written.broken
            return
        assert result.append.logics_offset == (len(self.queues[keys[0]]) if keys else 0)
        self.take([message.body for message in messages])

    def take(self, bodies: list[bytes]) -> None:
        for body in bodies:
            for key in self.queues_of[body]:
                self.queues[key].append(body)

    @rule()
    def flush_log(self) -> None:
        self.written.attempt(self.store.flush_log, flushes=True)

    @rule()
    def flush(self) -> None:
        self.written.attempt(self.store.flush, flushes=True)

    @rule()
    def dispatch(self) -> None:
        self.written.attempt(self.store.dispatch)

    @rule(fault=st.sampled_from(ERRORS), calls=st.integers(1, 12))
    def fail_soon(self, fault: Fault, calls: int) -> None:
        self.system.strike(fault, calls)

    @precondition(lambda self: self.system.at)
    @rule()
    def heal(self) -> None:
        self.system.heal()

    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()

    @rule(fault=st.sampled_from([Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_WITHIN]), calls=st.integers(1, 30))
    def crash_while_it_flushes(self, fault: Fault, calls: int) -> None:
        self.system.strike(fault, calls)
        try:
            self.written.attempt(self.store.dispatch)
            self.written.attempt(self.store.flush, flushes=True)
        except Crashed:
            self.crash(power_fails=False, seed=None)
        self.system.heal()

    @rule(power_fails=st.booleans(), seed=st.none() | st.integers(0, 99))
    def crash(self, power_fails: bool, seed: int | None) -> None:
        self.system.__exit__(None, None, None)
        self.system.end_process(self.descriptors)
        if power_fails:
            self.lives += 1
            self.root = self.folder / str(self.lives)
            self.system.after_power_failure(self.root, None if seed is None else random.Random(seed))
        self.go_on_after_recovery(power_failed=power_fails)
        self.open()

    def close(self) -> None:
        self.written.attempt(self.store.close, flushes=True)
        self.system.__exit__(None, None, None)
        assert open_descriptors() <= self.descriptors
        if self.written.broken:
            self.go_on_after_recovery(power_failed=False)
        else:
            assert_whole(self.root, self.written)
            self.assert_as_the_model()

    def go_on_after_recovery(self, *, power_failed: bool) -> None:
        """The model keeps what is left, after it is known that all is left that must be."""
        assert_whole(self.root, self.written, power_failed=power_failed)
        recover(self.root)
        self.written.acknowledged, damages = log_of(self.root)
        assert not damages
        self.written.flushed = len(self.written.acknowledged)
        self.written.in_doubt = []
        self.queues.clear()
        self.take([kept.body for kept in self.written.acknowledged])

    def assert_as_the_model(self) -> None:
        found = {}
        with closing(ReadOnlyStore(self.root)) as store:
            for key, queue in store.queues.items():
                stored = [
                    store.commit_log.message_at(unit.physical_offset) for unit in queue.units(0, queue.max_offset)
                ]
                found[key] = [message.body for message in stored if message is not None]
        assert found == {key: bodies for key, bodies in self.queues.items() if bodies}

    def teardown(self) -> None:
        self.system.heal()
        self.close()
        self.open()
        self.close()
        assert not self.written.broken
        assert_dense(self.root)
        assert findings_of(self.root) <= ONLY_SLOW
        self.inline.stop()
        shutil.rmtree(self.folder)


def test_the_engine_is_as_the_model() -> None:
    run_state_machine_as_test(StoreMachine, settings=settings(PROPERTY, max_examples=20, stateful_step_count=30))


@pytest.mark.slow
def test_the_engine_is_as_the_model_for_long() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(PROPERTY, max_examples=50, stateful_step_count=60, derandomize=False)
    )
