"""What rmqctl says that a start of a broker comes to, with the place of each message that consumers would get.

A simulation keeps no contents of the units that it adds; here they are noted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.store.config.broker_conf import read_broker_conf
from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.recovery import simulation
from rmqctl.store.recovery.replay import RecoveryPass
from rmqctl.store.recovery.simulated_queue import RecoveredQueue
from rmqctl.store.recovery.simulated_queues import RecoveredQueues
from tests.damage.command import breach, call

if TYPE_CHECKING:
    from rmqctl.format.columns import Rows
    from rmqctl.format.message import Message
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.config.topics import QueueKey

SHOWN = 400


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
        """Every unit of each plain queue, from its min offset on."""
        found = {}
        for queue, low, high in self.with_offsets():
            if isinstance(queue, RecoveredQueue):
                key = (queue.topic, queue.queue_id)
                added = self._added.get(key, {})
                on_disk = ((place, queue.unit(place)) for place in range(max(low, 0), high) if _is_found(queue, place))
                found[key] = {place: Unit(*unit) if unit else added[place] for place, unit in on_disk}
        return found

    def _end_of(self, key: QueueKey) -> int:
        queue = self._queues.get(key)
        return queue.max_offset if queue is not None else 0

    def _note(self, key: QueueKey, before: int, unit: Unit) -> None:
        if (after := self._end_of(key)) > before:
            self._added.setdefault(key, {})[after - 1] = unit


def _is_found(queue: RecoveredQueue, place: int) -> bool:
    """A file whose name is no multiple of a unit's size begins in the middle of a place."""
    file = queue._file_at(place)
    return file is None or file.file_from_offset <= place * CQ_UNIT.size


class Prediction(NamedTuple):
    """`restart` as `rmqctl recover --dry-run -o json` prints it, and the simulation behind it."""

    restart: dict[str, Any]
    queues: NotedQueues
    log: RecoveryPass
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
        end, size = self.restart["maxPhyOffset"], self.log.file_size
        file = self._file_of(unit.physical_offset)
        if file is None or file.file_from_offset > end:
            return None
        position = unit.physical_offset % size
        wrote = min(end - file.file_from_offset, size)
        return file.file_from_offset + position if 0 < unit.size <= wrote - position else None

    def _file_of(self, physical_offset: int) -> MappedFile | None:
        """The rule is MappedFileQueue.findMappedFileByOffset: files that were renamed can overlap."""
        files, size = self.log.files, self.log.file_size
        if not files:
            return None
        number = physical_offset // size - self.log.start // size
        order = (*files[number : number + 1], *files) if number >= 0 else files
        found = (file for file in order if file.file_from_offset <= physical_offset < file.end)
        return next(found, None if physical_offset else files[0])


def predict(root: Path, conf: Path, profile: Profile) -> Prediction:
    """Simulate a plain start of a store alone, without the broker, which reads the rest of config/."""
    store = ReadOnlyStore(root, read_broker_conf(conf))
    builder = DispatchRequestBuilder(with_keys=False)
    with (
        patch.object(simulation, "RecoveredQueues", NotedQueues),
        patch.object(simulation, "CONFIGS", ("delayOffset.json",) if not profile.knows_topic_attributes else ()),
    ):
        restart = simulation.RestartSimulation(store, profile, builder)
    if restart.refused is None:
        restart.listen(threads=1)
    outcome = restart.finish()
    store.close()
    queues = restart._queues
    assert isinstance(queues, NotedQueues)
    return Prediction(outcome.to_json(), queues, restart._log, outcome.hangs_at)


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
