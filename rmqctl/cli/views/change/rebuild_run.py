"""A run of a rebuild: show the plan, ask the user, and make the change.

Both `rmqctl rebuild` and `rmqctl job rebuild` use this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.confirm import confirm, plan_shown, undo_hint
from rmqctl.cli.shared.interruption import ChangeInterruption
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.cli.views.change.rebuild_view import NextStart, RebuildView
from rmqctl.cli.views.change.repair_view import check_writable, note_assumed_sizes
from rmqctl.cli.views.scan_progress import scan_progress
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.operations.rebuild.in_parts.log_tasks import LogTasks
    from rmqctl.operations.rebuild.rebuild import Rebuild, Selection
    from rmqctl.store.journal.transaction import Journal
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore


class HowToRebuild(NamedTuple):
    """The options of a rebuild.

    `selection` says which queues to rebuild, and whether to rebuild the index. The log is read by `threads` threads, or
    by `tasks`, which also write the new files.
    """

    selection: Selection
    dry_run: bool
    yes: bool
    output: str
    progress_mode: str
    threads: int = 1
    tasks: LogTasks | None = None
    profile: str | None = None


def warm_up_kernels() -> None:
    """Compile or load the kernels that a rebuild and the audit of the index need."""
    from rmqctl.kernels import index_match, queue_offset_range, queue_simulate
    from rmqctl.kernels.warm_up import warm_up
    from rmqctl.operations.rebuild.rebuild import Rebuild

    Rebuild.warm_up()
    warm_up(index_match, queue_simulate, queue_offset_range)


def check_store(store: ReadOnlyStore) -> None:
    """Check, before the log is read, that queues and index can be rebuilt.

    Raises BadRequest if the store has no log, and the errors of `check_writable`.
    """
    check_writable(store)
    if not store.commit_log.queue.files:
        raise BadRequest(
            "the store has no commit log file: there is nothing to rebuild from", path=str(store.path.root)
        )


def look_or_make(store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool = False) -> int:
    """Show the plan of a rebuild, execute it if wanted, and return the exit code.

    `fingerprint` is the state of the store's files when the store was opened. With `resume`, an interrupted rebuild is
    continued.
    """
    how = _for_profile(store, how)
    note_assumed_sizes(store, queues=how.selection.queues, index=how.selection.index)
    with store.storage.keeping_small_files():
        return _look(store, how) if how.dry_run else _make(store, fingerprint, how, resume=resume)


def _for_profile(store: ReadOnlyStore, how: HowToRebuild) -> HowToRebuild:
    """Return the options with the field `selection.tags` set.

    `tags` says whether the new index has TAGS as keys. Raises BadRequest if neither the store nor --profile shows
    whether the index needs TAGS.
    """
    from msgspec.structs import replace

    from rmqctl.format.profile import PROFILES
    from rmqctl.store.read.index.tag_index import indexes_tags

    tags = how.selection.index and indexes_tags(store, PROFILES[how.profile] if how.profile else None)
    return how._replace(selection=replace(how.selection, tags=tags))


def _look(store: ReadOnlyStore, how: HowToRebuild) -> int:
    rebuild = _rebuild(store, how, None)
    audit = rebuild.begin_audit()
    with scan_progress(store, how.progress_mode, "rebuild"):
        rebuild.run()
    plan = RebuildView(rebuild, store, store.path.root, audit, NextStart(how.profile, how.threads))
    with plan_shown(dry_run=True):
        plan.print_all(how.output)
    note_owner(store.path.root, store.path.commitlogs)
    return int(ExitCode.FINDINGS if plan.differs else ExitCode.CLEAN)


def _make(store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool) -> int:
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.store.journal.transaction import Journal

    root = store.path.root
    act_as_owner(root, store.path.commitlogs)
    with (
        ChangeInterruption(at_once=how.tasks is not None) as interruption,
        Journal.begin(
            root, "rebuild", _words(how.selection), WritableStorage.like(store.storage), go_on=resume
        ) as journal,
    ):
        store.check_as_it_was(fingerprint)
        rebuild = _rebuild(store, how, journal.staging)
        if resume:
            _go_on(rebuild, store, journal)
        audit = None if resume else rebuild.begin_audit()
        with scan_progress(store, how.progress_mode, "rebuild"):
            finished = rebuild.run(lambda: interruption.noted)
        if not finished:
            journal.suspend()
            remark(
                f"interrupted at offset {rebuild.result.log.position}; nothing was changed; --resume continues from "
                "there"
            )
            return int(ExitCode.INTERRUPTED)
        rebuild.check()
        plan = RebuildView(rebuild, store, journal.staging, audit, NextStart(how.profile, how.threads))
        with plan_shown(dry_run=False):
            plan.print_all(how.output)
        with interruption.waiting():
            confirm("Put the rebuilt files in place?", yes=how.yes)
        store.check_as_it_was(fingerprint)  # check again: a starting broker ignores the lock
        store.close()
        journal.execute(plan.todo, interruption.commit)
    remark(f"done; {undo_hint(root)}")
    return int(ExitCode.REPAIRED if plan.differs else ExitCode.CLEAN)


def _rebuild(store: ReadOnlyStore, how: HowToRebuild, staging: Path | None) -> Rebuild:
    """Return the rebuild, prepared but not started."""
    from rmqctl.operations.rebuild.in_parts.rebuild_in_parts import RebuildInParts
    from rmqctl.operations.rebuild.rebuild import Rebuild

    if how.tasks is None:
        return Rebuild(store, how.selection, staging, threads=how.threads)
    return RebuildInParts(store, how.selection, staging, how.tasks)


def _go_on(rebuild: Rebuild, store: ReadOnlyStore, journal: Journal) -> None:
    """Continue an interrupted rebuild, and report where it resumes.

    Raises BadRequest if the files of the interrupted rebuild cannot be used.
    """
    from rmqctl.operations.rebuild.rebuild import BEGIN_ANEW_HINT

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
