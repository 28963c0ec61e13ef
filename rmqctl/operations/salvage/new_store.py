"""Write a salvaged log as a store that brokers start on.

It has log, queues, index, checkpoint and configuration.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, NoRoom, RmqctlError
from rmqctl.format.message import MIN_SIZE
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.configuration.names_in_store import queues_in_log
from rmqctl.operations.configuration.restore_plan import TABLES, plan_restore
from rmqctl.operations.repair.analysis import RecoveryPolicy
from rmqctl.operations.repair.execute import build
from rmqctl.operations.repair.recovery_plan import plan_recovery
from rmqctl.operations.salvage.new_log import NewLog
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.config_file import CONFIG_SIZE_MAX
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.engine.new_store import named_when_complete, unfinished
from rmqctl.store.engine.opening import leave_signs
from rmqctl.store.journal.journals import list_journals
from rmqctl.store.journal.transaction import make_change
from rmqctl.store.journal.undo import forget, tidy
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store
from rmqctl.store.read.version_guess import guess_profile, shows_version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqctl.forensics.salvage.survey import Survey
    from rmqctl.format.profile import Profile

CONFIG_FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
MARGIN = 64 * 1024 * 1024  # bytes that must stay free


class Model:
    """What a store among the sources says of the new one.

    That is its version, file sizes and configuration.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.conf = BrokerConf()
        self.profile: Profile | None = None
        self.config: dict[str, bytes] = {}
        for path in paths:
            with suppress(RmqctlError, OSError), closing(ReadOnlyStore(path)) as store:
                sizes = geometry_of_store(store)._asdict()
                self.conf = self.conf._replace(**sizes)
                self.profile = guess_profile(store) if shows_version(store) else None
                for name in CONFIG_FILES:
                    if store.config(name).content is not None:  # no link, and what a broker reads
                        with suppress(OSError):
                            self.config[name] = store.storage.read_file(store.path.part(CONFIG) / name, CONFIG_SIZE_MAX)
                return


class NewStore:
    """The folder `root`, which must not exist."""

    def __init__(self, root: Path, model: Model, file_size: int, profile: Profile | None, threads: int) -> None:
        self._final = root
        self._root = unfinished(root)
        self._storage = WritableStorage(self._root)
        self._conf = model.conf._replace(commitlog_file_size=file_size)
        self._profile = profile or model.profile
        self._config = model.config
        self._threads = threads

    def write(self, found: Survey, *, compact: bool, limit: int) -> NewLog:
        """Write the store. Raises BadRequest, NoRoom and OSError."""
        size = self._conf.commitlog_file_size or 0
        missing = sum(end - begin for queue in found.queues.values() for begin, end, _ in queue.missing)
        lost = MIN_SIZE * missing if compact else sum(end - begin for begin, end in found.holes)
        if lost > limit:
            hint = "give a higher limit, or leave out the SOURCE from which only a few messages come"
            raise BadRequest(
                f"placeholders would fill {lost} bytes, more than --placeholders-limit ({limit})",
                hint=hint if compact else f"--holes compact leaves the holes out; or {hint}",
            )
        free = self._storage.free_bytes(next(folder for folder in self._root.parents if folder.exists()))
        if found.size + lost + MARGIN > free:
            raise NoRoom(f"the log needs {found.size + lost} bytes, {free} are free", path=str(self._final))
        with named_when_complete(self._final):
            return self._write(found, size, compact=compact)

    def _write(self, found: Survey, size: int, *, compact: bool) -> NewLog:
        log = NewLog(self._storage, self._root, size)
        log.write(found, compact=compact)
        for name, content in self._config.items():
            self._storage.replace_file(self._root / CONFIG / name, content)
        if self._profile is not None:
            leave_signs(self._storage, self._root, self._profile)
        self._build_queues()
        self._add_topics()
        return log

    def _opened(self) -> ReadOnlyStore:
        return ReadOnlyStore(self._root, self._conf)

    def _build_queues(self) -> None:
        with closing(self._opened()) as store:
            profile = self._profile or guess_profile(store)
            policy = RecoveryPolicy(profile, threads=self._threads, keep_going=True)
            plan = replace(plan_recovery(store, policy).repair, profile=profile)
            make_change(store, "salvage", "", partial(build, store, plan, self._threads))
        for journal in list_journals(self._storage, self._root):
            forget(self._storage, journal.folder)
        tidy(self._storage, self._root, self._storage.present(self._root).mtime_ns)

    def _add_topics(self) -> None:
        """Add the topics and groups that the log names: a broker serves no others."""
        for name in TABLES:
            with closing(self._opened()) as store:
                profile = self._profile or guess_profile(store)
                plan = plan_restore(store, profile, name, "store", lambda: queues_in_log(store, self._threads))
            if plan.change is not None:
                self._storage.replace_file(self._root / CONFIG / name, plan.change.after)
