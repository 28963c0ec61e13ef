"""A run of a rebuild: show the plan, ask the user, and make the change.

Both `rmqctl rebuild` and `rmqctl job rebuild` use this module.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.change import LogChangeOptions
from rmqctl.cli.shared.confirm import confirm, plan_shown, print_next_step, undo_hint
from rmqctl.cli.shared.interruption import ChangeInterruption
from rmqctl.cli.shared.options import scan_progress
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.cli.views.change.rebuild_view import RebuildView
from rmqctl.cli.views.change.repair_view import assumed_sizes, check_writable
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rmqctl.format.profile import Profile
    from rmqctl.operations.rebuild.rebuild import Rebuild
    from rmqctl.operations.rebuild.rebuild_in_task import InTask
    from rmqctl.operations.rebuild.selection import Selection
    from rmqctl.store.journal.transaction import Journal
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore


@dataclass(frozen=True)
class HowToRebuild(LogChangeOptions):
    """The options of a rebuild."""

    selection: Selection  # the queues to rebuild, and whether to rebuild the index
    in_task: InTask | None = None  # calls a function with the store in another process, which builds the new files
    profile: Profile | None = None


def warm_up_kernels(size: int | None = None) -> None:
    """Compile or load the kernels for a rebuild, unless the store is small.

    `size` is the size of the store in bytes. The audit of the index and the simulated start need kernels, too.
    """
    from rmqctl.kernels import index_match, queue_offset_range, queue_simulate
    from rmqctl.kernels.warm_up import warm_up
    from rmqctl.operations.rebuild.rebuild import Rebuild

    Rebuild.warm_up(size)
    warm_up(index_match, queue_simulate, queue_offset_range, size=size)


def check_store(store: ReadOnlyStore, *, refills: bool = False) -> None:
    """Check, before the log is read, that queues and index can be rebuilt.

    Raises BadRequest if the store has no log, or lost committed entries of its DLedger group, and the errors of
    `check_writable`.
    """
    from rmqctl.forensics.audit.state_audit import audit_committed

    check_writable(store, log_stays=True, refills=refills)
    for finding in audit_committed(store) if store.commit_log.has_entries else ():
        hint = "copy the log from another member of the group first: queues and index still lead to what is missing"
        raise BadRequest(finding.detail, path=finding.path, hint=hint)
    if not store.commit_log.queue.files:
        raise BadRequest(
            "the store has no commit log file: there is nothing to rebuild from", path=str(store.path.root)
        )


def look_or_make(store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool = False) -> int:
    """Show the plan of a rebuild, execute it if wanted, and return the exit code.

    `fingerprint` is the state of the store's files when the store was opened. With `resume`, an interrupted rebuild is
    continued.
    """
    run = RebuildRun(store, fingerprint, how, resume=resume)
    run.note_assumed_sizes()
    if how.dry_run:
        with run:
            with scan_progress(store, "rebuild"):
                run.build()
            return run.look()
    act_as_owner(store.path.root, store.path.commitlogs)
    with ChangeInterruption(at_once=False) as interruption, run:
        with scan_progress(store, "rebuild"):
            run.build(lambda: interruption.noted)
        return run.make(interruption)


class RebuildRun:
    """The rebuild of one store: build the new files, then put them in place.

    `fingerprint` is the state of the store's files when the store was opened. With `resume`, an interrupted rebuild is
    continued. Between the two steps, the run is open: a journal locks the store, and keeps the new files. With
    `how.dry_run`, there is no journal, and nothing is written.

    Raises BadRequest if neither the store nor --profile shows whether the index needs TAGS.
    """

    def __init__(
        self, store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool = False
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._how = _for_profile(store, how)
        self._resume = resume
        self._opened = ExitStack()
        self._journal: Journal | None = None
        self._rebuild: Rebuild | None = None
        self._is_finished = True

    def __enter__(self) -> Self:
        from rmqctl.logfile.system.writable_storage import WritableStorage
        from rmqctl.store.journal.transaction import Journal

        store = self._store
        with ExitStack() as opened:
            opened.enter_context(store.storage.keeping_small_files())
            if not self._how.dry_run:
                storage = WritableStorage.like(store.storage)
                words = _words(self._how.selection)
                self._journal = opened.enter_context(
                    Journal.begin(store.path.root, "rebuild", words, storage, go_on=self._resume)
                )
                store.check_as_it_was(self._fingerprint)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def note_assumed_sizes(self) -> None:
        """Report on stderr if new files get default sizes."""
        selection = self._how.selection
        for line in assumed_sizes(self._store, queues=selection.queues, index=selection.index):
            remark(line)

    def build(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Read the log, and build the new files, until `is_over` returns True."""
        from rmqctl.operations.rebuild.rebuild import Rebuild
        from rmqctl.operations.rebuild.rebuild_in_task import let_build

        how, staging = self._how, None if self._journal is None else self._journal.staging
        rebuild = Rebuild(self._store, how.selection, staging, threads=how.threads, compares_index=not self._resume)
        if self._resume and self._journal is not None:
            _go_on(rebuild, self._store, self._journal)
        if how.in_task is None:
            self._is_finished = rebuild.run(is_over)
        else:
            let_build(rebuild, how.in_task)
        self._rebuild = rebuild

    def look(self) -> int:
        """Show what would change, and return the exit code."""
        plan = self._plan(dry_run=True)
        note_owner(self._store.path.root, self._store.path.commitlogs)
        if plan.differs and self._how.in_task is None:
            print_next_step(self._how.output, plan.first)
        return int(ExitCode.FINDINGS if plan.differs else ExitCode.CLEAN)

    def make(self, interruption: ChangeInterruption) -> int:
        """Show the plan, put the new files in place, and return the exit code.

        Without `how.yes`, the user is asked for confirmation.
        """
        store, root = self._store, self._store.path.root
        rebuild = self._rebuild
        if self._journal is None or rebuild is None:
            raise ValueError("nothing is built")
        if not self._is_finished:
            self._journal.suspend()
            remark(
                f"interrupted at offset {rebuild.result.log.position}; nothing was changed; --resume continues from "
                "there"
            )
            return int(ExitCode.INTERRUPTED)
        rebuild.check()
        plan = self._plan(dry_run=False)
        with interruption.waiting():
            confirm("Put the rebuilt files in place?", yes=self._how.yes)
        store.check_as_it_was(self._fingerprint)  # check again: a starting broker ignores the lock
        store.close()
        self._journal.execute(plan.todo, interruption.commit)
        remark(f"done; {undo_hint(root)}")
        return int(ExitCode.REPAIRED if plan.differs else ExitCode.CLEAN)

    def _plan(self, *, dry_run: bool) -> RebuildView:
        """Print the plan, and return it."""
        if self._rebuild is None:
            raise ValueError("nothing is built")
        root = self._store.path.root if self._journal is None else self._journal.staging
        plan = RebuildView(self._rebuild, self._store, root, self._how.profile, self._how.threads)
        with plan_shown(dry_run=dry_run):
            plan.print_all(self._how.output)
        return plan


def _for_profile(store: ReadOnlyStore, how: HowToRebuild) -> HowToRebuild:
    """Return the options with the field `selection.tags` set.

    `tags` says whether the new index has TAGS as keys. Raises BadRequest if neither the store nor --profile shows
    whether the index needs TAGS.
    """
    from msgspec import structs

    from rmqctl.store.read.index.tag_index import indexes_tags

    tags = how.selection.index and indexes_tags(store, how.profile)
    return replace(how, selection=structs.replace(how.selection, tags=tags))


def _go_on(rebuild: Rebuild, store: ReadOnlyStore, journal: Journal) -> None:
    """Continue an interrupted rebuild, and report where it resumes.

    Raises BadRequest if the files of the interrupted rebuild cannot be used.
    """
    from rmqctl.operations.rebuild.interrupted import BEGIN_ANEW_HINT

    if not journal.goes_on:
        raise BadRequest(
            "nothing to resume: no rebuild was interrupted here", path=str(store.path.root), hint=BEGIN_ANEW_HINT
        )
    queues = rebuild.go_on()
    built = [counted(queues, "queue")] if rebuild.selection.queues else []
    built += [f"{counted(rebuild.result.index.entries, 'key')} in the index"] if rebuild.selection.index else []
    log = rebuild.result.log
    remark(
        f"resuming at step 1 of 2, reading the log, at offset {log.position} of "
        f"{store.commit_log.queue.files[-1].end}: "
        f"{' and '.join(built)} of {counted(log.messages, 'message')} are built already (step 2 installs them)"
    )


def _words(selection: Selection) -> str:
    of_topic = "" if selection.topic is None else f" of {selection.topic}"
    of_queue = "" if selection.queue_id is None else f"/{selection.queue_id}"
    made = [
        name
        for name, is_made in ((f"queues{of_topic}{of_queue}", selection.queues), ("index", selection.index))
        if is_made
    ]
    return f"rebuilt from the log: {' and '.join(made)}"
