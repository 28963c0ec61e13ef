"""Recovery of a queue without its units in memory, against a model that has them all and goes step by step as
ConsumeQueue does.
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rmqctl.format.cq_unit import CQ_UNIT, PRE_BLANK_SIZE
from rmqctl.format.profile import number_of, start_rules
from rmqctl.kernels.dispatch_scan import DISPATCH_COLUMNS
from rmqctl.kernels.queue_simulate import FILL_STATES, are_before, fill
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.recovery.queues.simulated_queue import (
    FillTable,
    RecoveredQueue,
    SmallQueues,
    begin_at_first_unit,
)

UNITS = 5
SEEDS = 800
Unit = tuple[int, int]
ZERO = (0, 0)


class Model:
    """ConsumeQueue with all of its units: `files` by their first units' queue offsets, ascending; `wrote` of the last
    one. Files of `left_out` are opened where new ones of their names are made.
    """

    def __init__(self, files: dict[int, list[Unit]], left_out: dict[int, list[Unit]], version: str) -> None:
        self.files = {base: list(units) for base, units in sorted(files.items())}
        self.left_out = {base: list(units) for base, units in left_out.items()}
        self.by_start, self.keeps_repeats = number_of(version) < (4, 5), number_of(version) < (4, 2)
        self.wrote = UNITS
        self.max_physical = -1
        self.min = 0

    @property
    def last(self) -> int:
        return max(self.files)

    @property
    def max(self) -> int:
        return self.last + self.wrote if self.files else 0

    def after(self, offset: int, size: int) -> int:
        return offset + (1 if self.by_start else size)

    def recover(self) -> None:
        for base in list(self.files)[-3:]:
            used = 0
            for offset, size in self.files[base]:
                if offset < 0 or size <= 0:
                    break
                used += 1
                self.max_physical = self.after(offset, size)
            self.wrote = used
            if used < UNITS:
                for later in [other for other in self.files if other > base]:
                    del self.files[later]
                return

    def put(self, offset: int, size: int, queue_offset: int) -> None:
        if self.after(offset, size) <= self.max_physical:
            return
        if not self.files:
            base = queue_offset - queue_offset % UNITS
            self._open(base)
            if queue_offset:
                self.min = queue_offset
                while self.max < queue_offset:
                    self._append((0, PRE_BLANK_SIZE))
        elif self.wrote == UNITS:
            self._open(self.last + UNITS)
        if queue_offset and queue_offset < self.max and not self.keeps_repeats:
            return
        self.max_physical = self.after(offset, size)
        self._append((offset, size))

    def _open(self, base: int) -> None:
        self.files[base], self.wrote = self.left_out.pop(base, [ZERO] * UNITS), 0

    def _append(self, unit: Unit) -> None:
        self.files[self.last][self.wrote] = unit
        self.wrote += 1

    def cut(self, log_end: int) -> None:
        self.max_physical = log_end
        while self.files:
            units = self.files[self.last]
            if units[0][0] >= log_end:
                del self.files[self.last]
                continue
            self.wrote, self.max_physical = 1, self.after(*units[0])
            for offset, size in units[1:]:
                if offset < 0 or size <= 0 or offset >= log_end:
                    return
                self.wrote, self.max_physical = self.wrote + 1, self.after(offset, size)
            return

    def correct_min(self, log_start: int, *, by_bisection: bool) -> bool:
        """False: it fails."""
        readable = UNITS if len(self.files) > 1 else self.wrote
        if not self.files:
            return True
        first = min(self.files)
        found = [first + at for at, (offset, _) in enumerate(self.files[first][:readable]) if offset >= log_start]
        if not by_bisection:
            self.min = found[0] if found else self.min
            return True
        if self.min >= self.max:
            return True
        if not self.wrote:
            return False
        if self.files[self.last][self.wrote - 1][0] < log_start:
            self.min = self.max
        elif self.min < first or (self.min < first + readable and self.files[first][self.min - first][0] < log_start):
            found = [at for at in found if at >= self.min]
            self.min = found[0] if found else self.min
        return True


def on_disk(rng: random.Random, *, orderly: bool) -> dict[int, list[Unit]]:
    """Some files of units; where not `orderly` with holes, stale units, units into nowhere, and missing files."""
    first, count = UNITS * rng.randrange(3), rng.randrange(6)
    files, at = {}, rng.randrange(300)
    for number in range(count):
        units = []
        for _ in range(UNITS):
            at += rng.randrange(20, 40)
            units.append((at, 20))
        files[first + number * UNITS] = units
    if count:
        end = rng.randrange(UNITS + 1)
        last = files[first + (count - 1) * UNITS]
        last[end:] = [ZERO] * (UNITS - end)
    for _ in range(0 if orderly else rng.randrange(4)):
        if files:
            base = rng.choice(list(files))
            files[base][rng.randrange(UNITS)] = rng.choice(
                [ZERO, (-1, 20), (2000, 20), (7, 20), (rng.randrange(1500), 0)]
            )
    if len(files) > 2 and not orderly and rng.randrange(4) == 0:
        del files[first + UNITS]
    return files


def written(tmp_path: Path, files: dict[int, list[Unit]]) -> MappedFileQueue:
    folder = tmp_path / "consumequeue/T/0"
    folder.mkdir(parents=True)
    for base, units in files.items():
        data = b"".join(CQ_UNIT.struct.pack(*unit, 7) for unit in units)
        (folder / f"{base * CQ_UNIT.size:020d}").write_bytes(data)
    return MappedFileQueue(Storage(tmp_path), [folder], UNITS * CQ_UNIT.size)


def real(there: MappedFileQueue, loaded: int, version: str) -> tuple[RecoveredQueue, np.ndarray]:
    table = FillTable(start_rules(version), UNITS)
    files, left_out = there.files[:loaded], there.files[loaded:]
    return RecoveredQueue("T", 0, files, table, 0, left_out), table.rows[:1]


def recover(queue: RecoveredQueue, there: MappedFileQueue, loaded: int, *, in_memory: bool) -> None:
    """With `in_memory`, a queue of one file is recovered together with others."""
    small = SmallQueues(queue._table)
    with there.storage.keeping_small_files():
        if not in_memory or not small.add(0, there.files[:loaded]):
            queue.recover()
    small.recover()


def put_all(states: np.ndarray, messages: list[tuple[int, int, int]]) -> None:
    """Through the kernel that takes many."""
    rows = np.zeros(len(messages), DISPATCH_COLUMNS)
    for row, (offset, size, queue_offset) in zip(rows, messages, strict=True):
        row["physical_offset"], row["size"], row["queue_offset"] = offset, size, queue_offset
    assert fill(rows, 0, np.zeros(1, np.int32), states, UNITS, 0) == len(rows)


def state_of(queue: RecoveredQueue | Model, states: np.ndarray | None = None) -> tuple[int, int, int]:
    if isinstance(queue, Model):
        return queue.max, queue.max_physical, queue.min
    assert states is not None
    return queue.max_offset, int(states["max_physical_offset"][0]), queue.min_offset


@pytest.mark.parametrize("part", range(10))
def test_it_is_the_model(tmp_path: Path, part: int) -> None:
    for seed in range(part, SEEDS, 10):
        rng = random.Random(seed)
        files = on_disk(rng, orderly=seed % 2 == 0)
        with closing(written(tmp_path / str(seed), files)) as there:
            play(files, there, seed, rng)


def play(files: dict[int, list[Unit]], there: MappedFileQueue, seed: int, rng: random.Random) -> None:
    """One queue from files to min offset, in both ways."""
    version = rng.choice(("5.3.3", "5.3.3", "4.9.7", "4.9.2", "4.4.0", "4.1.0"))
    start, bases = start_rules(version), sorted(files)
    loaded = rng.randrange(len(files) + 1) if start.stops_loading_at_wrong_length else len(files)
    model = Model(
        {base: files[base] for base in bases[:loaded]}, {base: files[base] for base in bases[loaded:]}, version
    )
    queue, states = real(there, loaded, version)
    if loaded:
        model.recover()
        recover(queue, there, loaded, in_memory=seed % 5 > 0)
    assert state_of(queue, states) == state_of(model), seed
    log_start = rng.choice([0, 0, 250])
    at = rng.choice([log_start, 250, 600])
    next_offset = rng.choice([0, model.max, max(model.max - 3, 0), rng.randrange(30)])
    messages = []
    for _ in range(rng.randrange(25)):
        at += 30
        messages.append((at, rng.choice((20, 45)), next_offset))
        next_offset = rng.choice([next_offset + 1] * 9 + [0, next_offset + 3])
    middle = rng.randrange(len(messages) + 1)
    log_end = at + 30
    odd = (rng.choice([3, 5000, 40, -9]), 20, next_offset) if seed % 3 == 0 else None
    put_all(states, messages[:middle])
    for message in messages[:middle]:
        model.put(*message)
    if odd:
        queue.put(*odd, is_odd=True)
        model.put(*odd)
    put_all(states, messages[middle:])
    for message in messages[middle:]:
        model.put(*message)
    assert state_of(queue, states) == state_of(model), seed
    if rng.randrange(2):
        if not are_before(states, log_end)[0]:
            queue.cut(log_end)
        model.cut(log_end)
        assert state_of(queue, states) == state_of(model), seed
        for number in range(rng.randrange(4)):
            message = (log_end - 20 + number * 20, 20, model.max)
            queue.put(*message, is_odd=False)
            model.put(*message)
        assert state_of(queue, states) == state_of(model), seed
    is_known = begin_at_first_unit(states, log_start, start)[0]
    failed = not is_known and queue.correct_min_offset(log_start, start) is not None
    by_bisection = start.expired_queue_begins_at_end
    assert failed == (not model.correct_min(log_start, by_bisection=by_bisection))
    if not by_bisection or (odd is None and seed % 2 == 0):  # of units that are not in order, it finds one of many
        assert state_of(queue, states) == state_of(model), seed


def test_many_queues_together_are_each_alone(tmp_path: Path) -> None:
    rng, count = random.Random(7), 60
    alone, together = np.zeros(count, FILL_STATES), FillTable(start_rules("4.9.7"), UNITS)
    small = SmallQueues(together)
    for number in range(count):
        units = [rng.choice([(rng.randrange(300), rng.randrange(20))] * 5 + [ZERO, (-1, 20)]) for _ in range(UNITS)]
        with closing(written(tmp_path / str(number), {number * UNITS: units})) as there:
            queue, states = real(there, 1, "4.9.7")
            queue.recover()
            with there.storage.keeping_small_files():
                assert small.add(number, there.files)
        used = [offset for offset, _ in units[: int(states["wrote"][0])]]
        states["leads_from"], states["leads_to"] = min(used, default=0), max(used, default=-1) + 1
        alone[number] = states[0]
    small.recover()
    assert together.rows[:count].tolist() == alone.tolist()
