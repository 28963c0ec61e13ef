"""A run of `rmqctl clean`: show the plan, ask, and delete the files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from rmqctl.cli.output.render import is_terminal, remark
from rmqctl.cli.shared.change import ChangeOptions
from rmqctl.cli.shared.confirm import confirm, plan_shown, print_next_step
from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.cli.shared.verb import flush_output
from rmqctl.cli.views.change.clean_view import print_plan, words_of_deletion, words_of_plan
from rmqctl.cli.views.change.repair_view import check_complete
from rmqctl.errors import ExitCode, StoreInUse
from rmqctl.text import quoted

if TYPE_CHECKING:
    from rmqctl.cli.views.metrics_file import MetricsFile
    from rmqctl.operations.clean.disk_use import DiskUse
    from rmqctl.operations.clean.execute import Cleaned, Leftover
    from rmqctl.operations.clean.plan_types import ExpiryPlan
    from rmqctl.store.config.clean_config import ExpirySettings
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore

T = TypeVar("T")

GAUGES = {
    "exit_status": "Exit status of the last run; 0: done, or nothing to do.",
    "expired_files": "Files that the plan of the last run deletes.",
    "expired_bytes": "Disk space of these files, and of files that an interrupted run left.",
    "waiting_messages": "Messages in these files: not consumed by a group, not delivered yet, or open half messages.",
    "deleted_files": "Files that the last run deleted.",
    "deleted_bytes": "Disk space of the deleted files, and of files that an interrupted run left.",
    "kept_files": "Files of the commit log that stay.",
    "log_min_offset_bytes": "The commit log's first physical offset.",
    "disk_used_percent": "How full the disk of a folder of the store was before; -1: unknown.",
}
IN_USE_HINT = "a broker deletes its expired files itself, and keeps the space of those that others delete"


@dataclass(frozen=True)
class CleanOptions(ChangeOptions):
    """The options of `rmqctl clean`. Sizes are in bytes, and times are in epoch ms.

    A field with the name of a field of ExpirySettings takes its place.
    """

    reserved_hours: int | None
    delete_when: tuple[int, ...] | None
    max_disk_percent: int | None
    force_percent: int | None
    manual: bool
    keep_bytes: int | None
    keep_files: int | None
    batch: int | None
    interval: int
    max_bytes_per_second: int | None
    now: int | None
    by: Literal["mtime", "store-timestamp"]
    protect_unconsumed: bool
    unused_topics: bool
    lock_wait: float
    log_json: Path | None
    metrics: Path | None


def _settings(usual: ExpirySettings, asked: CleanOptions) -> ExpirySettings:
    """Return the settings `usual`, changed by the options that the user gave."""
    from rmqctl.store.config.clean_config import HOUR_MS

    options = vars(asked) | {"reserved_ms": asked.reserved_hours and asked.reserved_hours * HOUR_MS}
    return usual._replace(**{name: options[name] for name in usual._fields if options.get(name) is not None})


class _Looked(NamedTuple):
    """The data that a run of `rmqctl clean` has read from the store.

    rmqctl computes the fingerprint before it reads the data, and checks the fingerprint before it deletes files.
    """

    fingerprint: Fingerprint
    disks: list[DiskUse]
    plan: ExpiryPlan
    left: list[Leftover]
    now_ms: int

    @property
    def has_work(self) -> bool:
        return bool(self.plan.going or self.plan.folders or self.left)


class CleanRun:
    """One run of `rmqctl clean`: show the plan, ask, and delete the files."""

    def __init__(self, store: ReadOnlyStore, asked: CleanOptions, gauges: MetricsFile, *, has_conf: bool) -> None:
        self._has_conf = has_conf
        self._store = store
        self._root = store.path.root
        self._asked = asked
        self._gauges = gauges

    def run(self) -> int:
        """Show the plan, delete the files if this is wanted, and return the exit code."""
        store, asked = self._store, self._asked
        check_complete(store)
        looked, holder = self._look(), store.lock_holder()
        is_refused = holder is not None and not asked.dry_run
        is_shown = asked.dry_run or (not asked.yes and looked.has_work)
        if is_shown or asked.output != "table":
            with plan_shown(dry_run=asked.dry_run):
                print_plan(store.path.root, looked.plan, looked.disks, looked.left, looked.now_ms, asked.output)
            self._note_kept()
        if is_shown or (looked.has_work and not is_refused):  # otherwise cron mails one line
            for warning in looked.plan.warnings:
                remark(f"note: {warning}")
        if is_shown:
            self._note_defaults()
        in_use = f"a broker, or another rmqctl (pid {holder}), has the store open"
        if is_refused:
            raise StoreInUse(f"{in_use}: nothing was deleted", path=str(self._root), hint=IN_USE_HINT)
        if holder is not None:
            remark(f"note: {in_use}: without --dry-run nothing is deleted (exit 11)")
        if asked.dry_run and looked.has_work:
            note_owner(self._root, store.path.commitlogs)
        if asked.dry_run or not looked.has_work:
            if not (is_shown and asked.output == "table" and is_terminal(sys.stdout)):  # where it is the first line
                self._sum_up(words_of_plan(self._root, looked.plan, looked.left))
            if looked.has_work:
                print_next_step(asked.output)
            return int(ExitCode.FINDINGS if looked.has_work else ExitCode.CLEAN)
        confirm(f"Delete what goes of {self._root}? This cannot be undone.", yes=asked.yes)
        return self._delete(looked)

    def _note_defaults(self) -> None:
        """Report that the broker's defaults decide which files expire."""
        if not self._has_conf and self._asked.reserved_hours is None:
            remark("note: no --broker-conf: log files expire after 72 hours, the broker's default fileReservedTime")

    def _note_kept(self) -> None:
        """Report how much disk space the journals of earlier repairs use."""
        from rmqctl.store.journal.journals import kept_bytes, list_journals

        kept = sum(kept_bytes(self._store.storage, entry) for entry in list_journals(self._store.storage, self._root))
        if kept:
            remark(
                f"note: rmqctl keeps the bytes that repairs changed, {kept} bytes; `rmqctl undo {quoted(self._root)} "
                "--drop` frees them"
            )

    def _look(self) -> _Looked:
        from rmqctl.operations.clean.disk_use import disk_use
        from rmqctl.operations.clean.execute import leftovers
        from rmqctl.operations.clean.plan import plan_expiry
        from rmqctl.store.config.clean_config import known_to
        from rmqctl.store.config.store_path import CONSUMEQUEUE
        from rmqctl.store.read.version_guess import guess_profile

        store, storage = self._store, self._store.storage
        profile, fingerprint = guess_profile(store), store.fingerprint()
        now_ms = self._asked.now if self._asked.now is not None else time.time_ns() // 1_000_000
        disks = [disk_use(storage, path, profile) for path in store.path.commitlogs]
        logics = disk_use(storage, store.path.part(CONSUMEQUEUE), profile)
        settings = _settings(known_to(profile, store.conf.expiry), self._asked)
        plan = plan_expiry(store, settings, profile, now_ms=now_ms, disks=disks, logics_disk=logics)
        left = leftovers(storage, self._root)
        self._gauges.set("expired_files", len(plan.going))
        self._gauges.set("expired_bytes", plan.allocated_bytes + sum(one.allocated_bytes for one in left))
        self._gauges.set("waiting_messages", plan.waiting.total)
        self._gauges.set("kept_files", sum(not file.goes for file in plan.files if file.kind == "commitlog"))
        self._gauges.set("log_min_offset_bytes", plan.min_phy_offset)
        for disk in (*disks, logics):
            self._gauges.set("disk_used_percent", disk.used_percent, path=str(disk.path))
        return _Looked(fingerprint, [*disks, logics], plan, left, now_ms)

    def _delete(self, looked: _Looked) -> int:
        from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME
        from rmqctl.logfile.system.writable_storage import WritableStorage
        from rmqctl.operations.clean.execute import Clean, Pace, locked
        from rmqctl.operations.clean.receipts import Receipts

        root, asked, storage = self._root, self._asked, WritableStorage.like(self._store.storage)
        elsewhere = [asked.log_json] if asked.log_json else []
        self._store.close()  # an open file keeps its disk space
        with (
            Interruption() as interruption,
            Receipts(storage, root / RECEIPTS_NAME, *elsewhere) as receipts,
            ExitStack() as held,
        ):
            receipts.open(elsewhere)  # the store's owner may have no right to write there
            self._gauges.hold(asked.metrics)
            act_as_owner(root, self._store.path.commitlogs)
            held.enter_context(locked(storage, root))
            self._store.check_as_it_was(looked.fingerprint)
            pace = Pace(asked.interval, asked.max_bytes_per_second, _sleep_in(interruption))
            clean = Clean(storage, root, looked.plan, receipts, pace, lambda: interruption.noted)
            try:
                clean.run()
            finally:
                self._measure(clean.done, looked.plan)
                for line in receipts.zero_tail:
                    remark(line)
            self._sum_up(words_of_deletion(root, looked.plan, clean.done))
        if interruption.noted:
            raise KeyboardInterrupt
        return int(ExitCode.CLEAN)

    def _measure(self, done: Cleaned, plan: ExpiryPlan) -> None:
        self._gauges.set("deleted_files", done.files)
        self._gauges.set("deleted_bytes", done.allocated_bytes)
        left = next((file for file in plan.going[done.files :] if file.kind == "commitlog"), None)
        self._gauges.set("log_min_offset_bytes", plan.new_min_phy_offset if left is None else int(Path(left.path).name))

    def _sum_up(self, line: str) -> None:
        """Print the result of the run in one line.

        With -o table, the result is printed on stdout. With other formats, the result is printed on stderr.
        """
        if self._asked.output != "table":
            remark(line)
            return
        try:
            print(line)
            flush_output()
        except OSError:
            remark(line)
            raise


def _sleep_in(interruption: Interruption) -> Callable[[float], None]:
    """Return a function that sleeps for some seconds. A signal ends the sleep early."""

    def sleep(seconds: float) -> None:
        if not interruption.noted:
            with interruption.waiting():
                time.sleep(seconds)

    return sleep
