"""The broker's start on the store as it is, which decides where the log ends."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from rmqctl.format.damage_kinds import UNCHECKED
from rmqctl.format.profile import start_rules
from rmqctl.operations.plan import Step
from rmqctl.operations.rebuild.planned_store import planned_store
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Resize
from rmqctl.store.read.store_file_sizes import geometry_of_store, queue_file_size
from rmqctl.store.recovery.rules import Mode, third_from_end
from rmqctl.store.recovery.simulation import RestartSimulation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Damage
    from rmqctl.format.profile import Profile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.simulation import RestartOutcome


FOLDERS_OF_FILES = (store_path.COMMITLOG, *store_path.QUEUE_PARTS)


class PresentStart:
    """A start on the store as it is (`now`).

    If load() refuses the store, or loads other log files because of foreign files, the end of the log is found by a
    start on the same store without them and with right file lengths (`corrected`). If load() would refuse that one,
    too, `corrected` is `now`.
    """

    def __init__(
        self, store: ReadOnlyStore, profile: Profile, builder: DispatchRequestBuilder, mode: Mode | None
    ) -> None:
        self.now = self.corrected = RestartSimulation(store, profile, builder, mode)
        self._log = store.commit_log.queue
        self._foreign = foreign_files(store)
        self._hides_files = start_rules(profile.version, store.conf.start).stops_loading_at_wrong_length
        self._loadable: ReadOnlyStore | None = None
        if self.now.refused is not None:
            self._loadable = loadable(store)
        elif self._foreign:
            self._loadable = planned_store(store, [Step(Delete(damage.path), "") for damage in self._foreign])
        if self._loadable is not None:
            mended = RestartSimulation(self._loadable, profile, builder, mode)
            if mended.refused is None and (self.now.refused or mended.log_files != self.now.log_files):
                self.corrected = mended

    @property
    def scanning(self) -> list[RestartSimulation]:
        """The simulations that must see the scan of the log."""
        is_one = self.corrected is self.now or self.now.refused is not None
        return [self.corrected] if is_one else [self.now, self.corrected]

    def foreign_steps(self) -> Iterator[Step]:
        """Yield the steps that delete the foreign files that harm a start."""
        is_refused = self.now.refused is not None
        why = "a broker may not load the store with it" if is_refused else "a broker loads other files with it"
        for damage in self._foreign:
            if damage.path.startswith(store_path.COMMITLOG):
                harms = self.corrected is not self.now
            else:
                harms = self._hides_files or PurePath(damage.path).name.isdecimal()
            if is_refused or harms:
                yield Step(Delete(damage.path), f"{damage.detail}: {why}")

    def finish(self) -> tuple[RestartOutcome, RestartOutcome]:
        """Return the results of `now` and of `corrected`.

        Call it once, after the scan of the log.
        """
        now = self.now.finish()
        return now, now if self.corrected is self.now else self.corrected.finish()

    def close(self) -> None:
        """Close the files of the store with right file lengths."""
        if self._loadable is not None:
            self._loadable.close()

    def has_ended(self, damage: Damage) -> bool:
        """Return whether the broker's recovery ends the log at or before a damage.

        If no broker loads the store, a normal recovery is assumed to scan the last three files, an abnormal one all.
        """
        if self.corrected.refused is None:
            return self.corrected.scan_end is not None
        files = self._log.files
        start = files[third_from_end(len(files))].file_from_offset if self.now.mode is Mode.NORMAL and files else 0
        # a repair fills an empty file with zeros, and zeros end the log
        is_empty = is_short_file(self._log, damage) and damage.size == self._log.file_size
        return damage.physical_offset >= start and (is_empty or damage.code not in UNCHECKED)


def is_short_file(log: MappedFileQueue, damage: Damage) -> bool:
    """Return whether a damage is the missing end of a log file that is too short."""
    file = log.at_or_before(damage.physical_offset)
    return (
        damage.code == "file-length"
        and file is not None
        and file.name == damage.path
        and file.end == damage.physical_offset
        and file.size_on_disk < log.file_size
    )


def loadable(store: ReadOnlyStore) -> ReadOnlyStore:
    """Return the store in a state that a broker loads.

    Foreign files are gone, and all files of log and queues have the right length, extended with zeros if need be. All
    this is in memory, not on disk. Raises OSError.
    """
    geometry, log = geometry_of_store(store), store.commit_log.queue
    sized = [(file, log.file_size) for file in log.files]
    for queue in store.queues.values():
        sized += [(file, queue_file_size(geometry, queue)) for file in queue.queue.files]
    steps = [Step(Resize(file.name, size), "") for file, size in sized if size and file.size_on_disk != size]
    if store.is_only_database_unreadable:
        steps.append(Step(Delete(store_path.CONSUMEQUEUE), ""))
    return planned_store(store, [*steps, *(Step(Delete(damage.path), "") for damage in foreign_files(store))])


def foreign_files(store: ReadOnlyStore) -> list[Damage]:
    """Return the files in the folders of log and queues that belong to neither."""
    return [
        damage
        for damage in store.foreign
        if damage.code == "foreign-file" and damage.path.split("/")[0] in FOLDERS_OF_FILES
    ]
