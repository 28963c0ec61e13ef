"""What rmqctl says that a start of a broker comes to, with the place of each message that consumers would get.

A simulation keeps no contents of the units that it adds; here they are noted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from rmqctl.format.cq_unit import CQ_UNIT, is_ext_address
from rmqctl.format.profile import number_of
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery import simulation
from rmqctl.store.recovery.queues.simulated_queue import _ON_DISK, RecoveredQueue
from rmqctl.store.recovery.queues.simulated_queues import RecoveredQueues
from rmqctl.store.recovery.replay import LoadedLog
from tests.damage.command import breach, call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Message
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey

SHOWN = 400
FILES_ARE_CHECKED = (4, 3)  # MappedFileQueue.findMappedFileByOffset: whether a file has the offset


class Unit(NamedTuple):
    """What a unit leads to, in bytes."""

    physical_offset: int
    size: int


class NotedQueues(RecoveredQueues):
    """Queues of a simulated recovery that note each unit that is added."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._added: dict[QueueKey, dict[int, Unit]] = {}

    def fill(self, messages: Rows) -> None:
        """One at a time, to see which get a unit."""
        for number in range(len(messages)):
            row = messages[number : number + 1]
            key = self._builder.keys[int(row["queue"][0])]
            before = self._end_of(key)
            super().fill(row)
            self._note(key, before, Unit(int(row["physical_offset"][0]), int(row["size"][0])))

    def _put(self, message: Message, *, is_odd: bool) -> None:
        before = {key: queue.max_offset for key, queue in self._queues.items()}
        super()._put(message, is_odd=is_odd)
        for key in self._queues:
            self._note(key, before.get(key, 0), Unit(message.physical_offset, message.size))

    def units(self) -> dict[QueueKey, dict[int, Unit]]:
        """The units that getMessage reads, for each place of each plain queue from its min offset on.

        Queues with a torn extension are left out.
        """
        found = {}
        for key, queue, low, high in self.with_offsets():
            if isinstance(queue, RecoveredQueue) and not self._has_torn_extension(queue):
                read = ((place, self._read(queue, place, low, high)) for place in range(max(low, 0), high))
                found[key] = {place: unit for place, unit in read if unit}
                for file in (*queue._files, *queue._left_out):
                    file.close()
        return found

    def _has_torn_extension(self, queue: RecoveredQueue) -> bool:
        """What a broker reads at such units depends on the bytes around them, and is no matter of a start."""
        extension = self._store.extensions.get((queue.topic, queue.queue_id))
        raw = b"".join(file.read(0, file.size // CQ_UNIT.size * CQ_UNIT.size) for file in queue._files)
        codes = [code for _, _, code in CQ_UNIT.struct.iter_unpack(raw)] if extension else []
        return extension is not None and any(
            extension.tags_code(code) is None for code in codes if is_ext_address(code)
        )

    def _read(self, queue: RecoveredQueue, place: int, low: int, high: int) -> Unit | None:
        """The unit that getMessage reads for a place of a queue [low, high).

        A file whose name is no multiple of a unit's size begins in the middle of a place, and so does the queue there;
        at its end, 4.x fails at the bytes that are left behind the last unit. 5.x goes on after the place that the file
        gives the unit, and so serves it at no other.
        """
        size = self._units_a_file * CQ_UNIT.size
        files: list[MappedFile | None] = [*queue._files]
        begins = [file.file_from_offset for file in queue._files]
        begin = begins[-1] + size if begins else queue.first * CQ_UNIT.size
        new = range(begin, int(queue._state["base"]) * CQ_UNIT.size + 1 if queue._state["has_files"] else 0, size)
        found = found_file([*begins, *new], size, place * CQ_UNIT.size, number_of(self._start.version))
        if found is None:
            return None
        file = (files + [None] * len(new))[found]
        position = place * CQ_UNIT.size % size
        at = [*begins, *new][found] // CQ_UNIT.size + position // CQ_UNIT.size
        is_outermost = place == low > 0 or (at == high - 1 and queue._rest and not self._start.has_batch_queues)
        if file is not None and file.file_from_offset % CQ_UNIT.size and is_outermost:
            return None
        if at != place and self._start.has_batch_queues:
            return None
        if file is not None and next(queue._record_runs(at, at + 1)).kind == _ON_DISK:
            return Unit(*CQ_UNIT.struct.unpack(file.read(position, CQ_UNIT.size))[:2])
        unit = queue.unit(at)
        return Unit(*unit) if unit else self._added[queue.topic, queue.queue_id][at]

    def _end_of(self, key: QueueKey) -> int:
        queue = self._queues.get(key)
        return queue.max_offset if queue is not None else 0

    def _note(self, key: QueueKey, before: int, unit: Unit) -> None:
        if (after := self._end_of(key)) > before:
            self._added.setdefault(key, {})[after - 1] = unit


class Prediction(NamedTuple):
    """`restart` as `rmqctl recover --dry-run -o json` prints it, and the simulation behind it."""

    restart: dict[str, Any]
    queues: NotedQueues
    log: LoadedLog
    log_end: int
    hangs_at: int | None

    def places(self) -> dict[QueueKey, list[int]]:
        """As the real store's answer has them: place, physical offset and size of what each place gives."""
        found = {}
        for key, units in self.queues.units().items():
            found[key] = [
                number
                for place, unit in units.items()
                if (begin := self._served_from(unit)) is not None
                for number in (place, begin, unit.size)
            ]
        return found

    def _served_from(self, unit: Unit) -> int | None:
        """Where CommitLog.getMessage finds the bytes of a unit; None: nowhere, or there are none.

        Offset 0 leads to the log's first file, whichever that is.
        """
        file = self._file_of(unit.physical_offset)
        if file is None:
            return None
        position = unit.physical_offset % self.log.file_size
        wrote = self.log.file_size if file.end <= self.log_end else self.log_end % self.log.file_size
        return file.file_from_offset + position if 0 < unit.size <= wrote - position else None

    def _file_of(self, physical_offset: int) -> MappedFile | None:
        files = self.log.files
        begins = [file.file_from_offset for file in files]
        found = found_file(begins, self.log.file_size, physical_offset, number_of(self.log.rules.version))
        return files[found] if found is not None else files[0] if files and not physical_offset else None


def found_file(begins: Sequence[int], size: int, offset: int, version: tuple[int, ...]) -> int | None:
    """The number of the file that a broker finds for an offset (MappedFileQueue.findMappedFileByOffset).

    `begins` has the offset of each file of `size` bytes. Up to 4.2.0, it is the file of the offset's number (an int),
    whatever the name of that.
    """
    number = _java_int(offset // size - begins[0] // size) if begins else -1
    if version < FILES_ARE_CHECKED:
        return number if 0 <= number < len(begins) else None
    if not begins or not begins[0] <= offset < begins[-1] + size:
        return None
    order = (*range(max(number, 0), min(number + 1, len(begins))), *range(len(begins)))
    return next((at for at in order if begins[at] <= offset < begins[at] + size), None)


def _java_int(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def predict(root: Path, conf: Path, profile: Profile) -> Prediction:
    """Simulate a plain start of a store alone, without the broker, which reads the rest of config/."""
    store = ReadOnlyStore(root, read_broker_conf(conf))
    builder = DispatchRequestBuilder(with_keys=False)
    with (
        patch.object(simulation, "RecoveredQueues", NotedQueues),
        patch.object(simulation, "CONFIGS", ("delayOffset.json",) if not profile.knows_topic_attributes else ()),
    ):
        restart = simulation.RestartSimulation(store, profile, builder)
    (outcome,) = simulation.outcomes_of([restart], store, builder, threads=1)
    store.close()
    queues = restart._queues
    assert isinstance(queues, NotedQueues)
    log_end = outcome.end.physical_offset if outcome.end else 0
    return Prediction(outcome.to_json(), queues, restart._log, log_end, outcome.hangs_at)


def recover_differs(root: Path, conf: Path, profile: Profile, prediction: Prediction) -> str:
    """How `restart` of `recover --dry-run` differs from a prediction; empty where it does not, or recover refuses."""
    words = ("recover", root, "--broker-conf", conf, "--broker-version", profile.version, "--dry-run", "-o", "json")
    result = call(*words)
    if broken := breach(result, *words):
        return broken
    said = result.document()["restart"] if result.out else prediction.restart
    if said == prediction.restart or said.get("refused", "").startswith("config/"):
        return ""
    return f"recover says {str(said)[:SHOWN]}, not {str(prediction.restart)[:SHOWN]}"
