"""`rmqctl clean`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import click

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.confirm import change_options, confirm, plan_shown
from rmqctl.cli.shared.interruption import Interruption
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import COUNT, POSITIVE, open_store, output_option, store_argument
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.cli.shared.sizes import SizeType
from rmqctl.cli.shared.times import HoursType, TimeType
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb, flush_output
from rmqctl.cli.views.clean_metrics import CleanMetrics, with_metrics
from rmqctl.cli.views.clean_view import print_plan, words_of_deletion, words_of_plan
from rmqctl.cli.views.repair_view import check_complete
from rmqctl.errors import ExitCode, StoreInUse
from rmqctl.text import quoted

if TYPE_CHECKING:
    from rmqctl.operations.clean.disk_use import DiskUse
    from rmqctl.operations.clean.execute import Cleaned, Leftover
    from rmqctl.operations.clean.plan_types import ExpiryPlan
    from rmqctl.store.config.clean_config import ExpirySettings
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore

T = TypeVar("T")

PERCENT = click.IntRange(0, 100)
SECONDS = click.FloatRange(0, 86_400)
IN_USE_HINT = "a broker deletes its expired files itself, and keeps the space of those that others delete"


@dataclass(frozen=True)
class CleanOptions:
    """What `rmqctl clean` was asked for; sizes in bytes, times in epoch ms."""

    reserved_hours: int | None
    when: tuple[int, ...] | None
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
    dry_run: bool
    yes: bool


@click.command(
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples=(
        ("rmqctl clean store --dry-run", "show for each file whether a broker would delete it now, and why"),
        (
            "rmqctl clean store --broker-conf broker.conf --yes",
            "do what the broker would do in this hour, and report it in one line",
        ),
        ("rmqctl clean store --reserved-hours 48 --manual --yes", "delete files older than two days, in any hour"),
        ("rmqctl clean store --keep-bytes 500GB --yes", "delete the oldest files until the log has at most 500 GB"),
        (
            "rmqctl clean copy --by store-timestamp --dry-run",
            "for a copy made without `cp -p`, where file times are wrong",
        ),
    ),
)
@store_argument
@click.option("--reserved-hours", type=COUNT, help="How old a file must be, in hours.  [default: fileReservedTime, 72]")
@click.option(
    "--when",
    type=HoursType(),
    help="Hours (local time) in which files of that age are deleted, such as 04 or 04;05; 24: never.  [default: "
    "deleteWhen, 04]",
)
@click.option(
    "--max-disk-percent",
    type=PERCENT,
    help="If the disk is fuller than this, files of that age are deleted in any hour; 10 to 95.  [default: "
    "diskMaxUsedSpaceRatio, 75]",
)
@click.option(
    "--force-percent",
    type=PERCENT,
    help="If the disk is fuller than this, files of any age are deleted; 5.x: 30 to 85.  [default: "
    "diskSpaceCleanForciblyRatio of 5.x, 85]",
)
@click.option(
    "--manual", is_flag=True, help="Delete files of that age in any hour, as after mqadmin deleteExpiredCommitLog."
)
@click.option(
    "--keep-bytes",
    type=SizeType(),
    help="Ignore these rules: delete files until the log has at most this many bytes (500GB, 465GiB).",
)
@click.option(
    "--keep-files", type=POSITIVE, help="Ignore these rules: delete files until the log has at most this many files."
)
@click.option(
    "--batch",
    type=POSITIVE,
    help="How many log files a broker deletes in one round; --manual runs 20 rounds.  [default: deleteFileBatchMax of "
    "5.x, 10]",
)
@click.option("--interval", type=COUNT, default=100, show_default=True, help="Wait this many ms between two files.")
@click.option("--max-bytes-per-second", type=SizeType(), help="Free at most this many bytes a second; 0: no limit.")
@click.option("--now", type=TimeType(), help="Decide as of this time.  [default: now]")
@click.option(
    "--by",
    type=click.Choice(("mtime", "store-timestamp")),
    default="mtime",
    show_default=True,
    help="The age of a file: by its modification time, as brokers do, or by its last message.",
)
@click.option(
    "--protect-unconsumed",
    is_flag=True,
    help="Keep files with messages that a consumer still waits for, and all files after them.",
)
@click.option(
    "--unused-topics", is_flag=True, help="Also remove empty queues of topics that config/topics.json does not list."
)
@click.option(
    "--lock-wait", type=SECONDS, default=0, show_default=True, help="Wait this many seconds for a store that is in use."
)
@click.option(
    "--log-json",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append the receipts to this file as well; STORE/rmqctl-clean.log always gets them.",
)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the results of the run to this file, for Prometheus.",
)
@change_options
@output_option("table", "json", "jsonl", "csv")
@options_in(asked=CleanOptions)
def command(store: Path, broker_conf: Path | None, follow_links: bool, output: str, asked: CleanOptions) -> int:
    """Delete expired files, by the rules of a broker: by age, by disk usage, or by a limit.

    clean deletes files of the log, the oldest first, and never the last one. Queues, extensions and the index follow
    the log. It moves each file out of the store, then deletes it, and writes a receipt. An interrupted run leaves no
    gap in the log; the next run finishes it.

    There is no undo. --dry-run shows for each file whether it is deleted, and why, and what consumers have not read
    yet. The broker must be down (otherwise exit 11): it deletes its own files, and it would keep the disk space of
    files that rmqctl deletes.
    """
    files = {"--metrics": asked.metrics, "--log-json": asked.log_json}
    _check_places([store], files)
    gauges = CleanMetrics(store)

    def run() -> int:
        _wait_for_lock(store, asked)
        opened = open_store(store, broker_conf, follow_links)
        _check_places(opened.path.commitlogs, files)
        return _Run(opened, asked, output, gauges).run()

    return with_metrics(gauges, asked.metrics, run)


def _settings(usual: ExpirySettings, asked: CleanOptions) -> ExpirySettings:
    """Return what broker.conf says, where no option says otherwise."""
    from rmqctl.store.config.clean_config import HOUR_MS

    reserved_ms = asked.reserved_hours * HOUR_MS if asked.reserved_hours is not None else None
    return usual._replace(
        reserved_ms=_given(reserved_ms, usual.reserved_ms),
        delete_when=_given(asked.when, usual.delete_when),
        max_disk_percent=_given(asked.max_disk_percent, usual.max_disk_percent),
        force_percent=_given(asked.force_percent, usual.force_percent),
        keep_bytes=_given(asked.keep_bytes, usual.keep_bytes),
        keep_files=_given(asked.keep_files, usual.keep_files),
        batch=_given(asked.batch, usual.batch),
        by=asked.by,
        manual=asked.manual,
        protect_unconsumed=asked.protect_unconsumed,
        unused_topics=asked.unused_topics,
    )


def _given(value: T | None, usual: T) -> T:
    return usual if value is None else value


def _check_places(folders: Sequence[Path], files: dict[str, Path | None]) -> None:
    """Check that rmqctl's own files do not lie in the folders of a broker.

    What is replaced, or appended to, must be a file.
    """
    from rmqctl.logfile.access.owner import is_root

    for option, file in files.items():
        if file is None:
            continue
        place = Path(os.path.realpath(file))
        if any(place.is_relative_to(os.path.realpath(folder)) for folder in folders):
            raise click.BadParameter(
                f"{file} is inside the store, where a broker may mistake it for its own: choose another place",
                param_hint=option,
            )
        if not place.parent.is_dir():
            raise click.BadParameter(f"there is no folder {file.parent}", param_hint=option)
        if place.exists() and not place.is_file():
            raise click.BadParameter(f"{file} is not a regular file", param_hint=option)
        if is_root() and place.exists() and place.stat().st_nlink > 1:
            what = (
                f"{file} has several names (hard links): root does not write to what somebody else may have linked "
                "there"
            )
            raise click.BadParameter(what, param_hint=option)


def _wait_for_lock(store: Path, asked: CleanOptions) -> None:
    from rmqctl.logfile.storage import Storage
    from rmqctl.operations.clean.execute import wait_for_lock

    if not asked.dry_run:
        wait_for_lock(Storage(store), store, asked.lock_wait)


class _Looked(NamedTuple):
    """What was seen of the store: its stamps come first, so that what changed meanwhile shows."""

    fingerprint: Fingerprint
    disks: list[DiskUse]
    plan: ExpiryPlan
    left: list[Leftover]
    now_ms: int

    @property
    def has_work(self) -> bool:
        return bool(self.plan.going or self.plan.folders or self.left)


class _Run:
    """The plan, the question, and the deletion."""

    def __init__(self, store: ReadOnlyStore, asked: CleanOptions, output: str, gauges: CleanMetrics) -> None:
        self._store = store
        self._root = store.path.root
        self._asked = asked
        self._output = output
        self._gauges = gauges

    def run(self) -> int:
        """Return the exit status."""
        store, asked = self._store, self._asked
        check_complete(store)
        looked, holder = self._look(), store.lock_holder()
        is_refused = holder is not None and not asked.dry_run
        is_shown = asked.dry_run or (not asked.yes and looked.has_work)
        if is_shown or self._output != "table":
            with plan_shown(dry_run=asked.dry_run):
                print_plan(store.path.root, looked.plan, looked.disks, looked.left, looked.now_ms, self._output)
            self._note_kept()
        if is_shown or (looked.has_work and not is_refused):  # else what cron mails is one line
            for warning in looked.plan.warnings:
                remark(f"note: {warning}")
        in_use = f"a broker, or another rmqctl (pid {holder}), has the store open"
        if is_refused:
            raise StoreInUse(f"{in_use}: nothing was deleted", path=str(self._root), hint=IN_USE_HINT)
        if holder is not None:
            remark(f"note: {in_use}: without --dry-run nothing is deleted (exit 11)")
        if asked.dry_run and looked.has_work:
            note_owner(self._root, store.path.commitlogs)
        if asked.dry_run or not looked.has_work:
            self._sum_up(words_of_plan(self._root, looked.plan, looked.left))
            return int(ExitCode.FINDINGS if looked.has_work else ExitCode.CLEAN)
        confirm(f"Delete what goes of {self._root}? This cannot be undone.", yes=asked.yes)
        return self._delete(looked)

    def _note_kept(self) -> None:
        """Report what else takes room."""
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
        plan, left = (
            plan_expiry(store, settings, profile, now_ms=now_ms, disks=disks, logics_disk=logics),
            leftovers(storage, self._root),
        )
        self._gauges.set("expired_files", len(plan.going))
        self._gauges.set("expired_bytes", plan.allocated_bytes + sum(one.allocated_bytes for one in left))
        self._gauges.set("waiting_messages", plan.waiting.total)
        self._gauges.set("kept_files", sum(not file.goes for file in plan.files if file.kind == "commitlog"))
        self._gauges.set("log_min_offset_bytes", plan.min_phy_offset)
        self._gauges.set_disks([(disk.path, disk.used_percent) for disk in (*disks, logics)])
        return _Looked(fingerprint, [*disks, logics], plan, left, now_ms)

    def _delete(self, looked: _Looked) -> int:
        from rmqctl.forensics.audit.cleaned import RECEIPTS_NAME
        from rmqctl.logfile.writable_storage import WritableStorage
        from rmqctl.operations.clean.execute import Clean, Pace, locked
        from rmqctl.operations.clean.receipts import Receipts

        root, asked, storage = self._root, self._asked, WritableStorage.like(self._store.storage)
        elsewhere = [asked.log_json] if asked.log_json else []
        self._store.close()  # a file that is open keeps its space
        with (
            Interruption() as interruption,
            Receipts(storage, root / RECEIPTS_NAME, *elsewhere) as receipts,
            ExitStack() as held,
        ):
            receipts.open(elsewhere)  # the store's owner may not write there
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
        """Report the run in one line.

        It is out before anything else is said of the run.
        """
        if self._output != "table":
            remark(line)
            return
        try:
            print(line)
            flush_output()
        except OSError:
            remark(line)
            raise


def _sleep_in(interruption: Interruption) -> Callable[[float], None]:
    """Return a signal ends the wait at once."""

    def sleep(seconds: float) -> None:
        if not interruption.noted:
            with interruption.waiting():
                time.sleep(seconds)

    return sleep
