"""`rmqctl rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.confirm import change_options, check_can_ask, confirm, plan_shown, undo_hint
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.interruption import ChangeInterruption
from rmqctl.cli.shared.options import (
    OFFSET,
    open_store,
    output_option,
    profile_option,
    progress_option,
    store_argument,
    threads_option,
)
from rmqctl.cli.shared.run_as import act_as_owner, note_owner
from rmqctl.cli.shared.verb import Verb
from rmqctl.cli.views.rebuild_view import NextStart, RebuildView
from rmqctl.cli.views.repair_view import REPAIR_VERB, check_writable, note_assumed_sizes
from rmqctl.cli.views.scan_progress import scan_progress
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.forensics.audit.index_audit import IndexAudit
    from rmqctl.operations.rebuild.rebuild import Rebuild, Scan, Selection
    from rmqctl.store.journal.transaction import Journal
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore

WHAT = ("queues", "index", "all")


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples=(
        (
            "rmqctl rebuild store all --dry-run",
            "show how many units would differ from the existing ones",
        ),
        ("rmqctl rebuild store queues --topic OrderPaid --yes", "the queues of one topic"),
        ("rmqctl rebuild store index --yes", "the index alone"),
        ("rmqctl undo store --yes", "undo the change"),
    ),
)
@store_argument
@click.argument("what", type=click.Choice(WHAT))
@click.option("--topic", help="Only the queues of this topic.")
@click.option("--queue", "queue_id", type=OFFSET, help="Only this queueId of the topic.")
@click.option(
    "--all-topics", is_flag=True, help="Also rebuild queues of deleted topics, which config/topics.json does not list."
)
@profile_option("Write the index as brokers of this version do.")
@click.option("--resume", is_flag=True, help="Continue an interrupted rebuild.")
@change_options
@output_option("table", "json")
@threads_option
@progress_option
def command(
    store: Path,
    broker_conf: Path | None,
    follow_links: bool,
    what: str,
    profile: str | None,
    dry_run: bool,
    yes: bool,
    resume: bool,
    output: str,
    threads: int,
    progress_mode: str,
    **asked: Any,
) -> int:
    """Rebuild queues and index from the log.

    rmqctl builds them beside the old ones, checks them, and puts them in place. The old ones are kept until `rmqctl
    undo --drop`. Each message of the log gets its unit, messages after damage too. Bodies are not checked; `verify`
    does that. A queue begins with its first message that the log still holds. A queue without a message in the log
    stays unchanged. Deleted topics get no queue.

    Files have the sizes of the existing files. If there are none, rmqctl takes the sizes from --broker-conf, or the
    broker's defaults.

    Exits with 3 if the rebuilt queues or index differ from the old ones, with 0 if not. With --dry-run: 1 if something
    differs, 0 if not. The plan also simulates the broker's next start: messages that it would no longer serve count as
    lost. Ctrl-C leaves the store unchanged, and --resume continues the rebuild. While a broker has the store open,
    rebuild exits with 11.
    """
    selected = selection(what, asked)
    opened = open_store(store, broker_conf, follow_links)
    fingerprint = opened.fingerprint()
    check_store(opened)
    check_can_ask(yes=yes or dry_run)
    warmed_up(prepare_kernels)
    how = HowToRebuild(selected, dry_run, yes, output, progress_mode, threads, profile=profile)
    return look_or_make(opened, fingerprint, how, resume=resume)


class HowToRebuild(NamedTuple):
    """What is built, for brokers of which `profile`, and how it is reported.

    The log is read by `threads`, or by `scan`.
    """

    selection: Selection
    dry_run: bool
    yes: bool
    output: str
    progress_mode: str
    threads: int = 1
    scan: Scan | None = None
    profile: str | None = None


def prepare_kernels() -> None:
    """Warm up the kernels that a rebuild and its audit need."""
    from rmqctl.kernels import index_match, queue_offset_range, queue_simulate
    from rmqctl.kernels.warm_up import warm_up
    from rmqctl.operations.rebuild.rebuild import Rebuild

    Rebuild.warm_up()
    warm_up(index_match, queue_simulate, queue_offset_range)


def selection(what: str, asked: dict[str, Any]) -> Selection:
    """Return what the options ask for. Raises UsageError where it makes no sense."""
    from rmqctl.operations.rebuild.rebuild import Selection

    if asked["queue_id"] is not None and asked["topic"] is None:
        raise click.UsageError("--queue needs --topic")
    if what != "queues" and asked["topic"] is not None:
        raise click.UsageError("the index covers all topics: use --topic with `queues`")
    return Selection(queues=what != "index", index=what != "queues", **asked)


def check_store(store: ReadOnlyStore) -> None:
    """Check a store before anything is read.

    Raises BadRequest, and as `check_writable`.
    """
    check_writable(store)
    if not store.commit_log.queue.files:
        raise BadRequest(
            "the store has no commit log file: there is nothing to rebuild from", path=str(store.path.root)
        )


def look_or_make(store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool = False) -> int:
    """Show the plan of a rebuild, carry it out if that is wanted, and return the exit status.

    `fingerprint` has the store's files as they were when the store was opened.
    """
    how = _for_profile(store, how)
    note_assumed_sizes(store, queues=how.selection.queues, index=how.selection.index)
    return _look(store, how) if how.dry_run else _make(store, fingerprint, how, resume=resume)


def _for_profile(store: ReadOnlyStore, how: HowToRebuild) -> HowToRebuild:
    """Choose whether TAGS go into the index.

    Raises BadRequest where neither the store nor --profile shows it.
    """
    from msgspec.structs import replace

    from rmqctl.format.profile import PROFILES
    from rmqctl.store.read.tag_index import indexes_tags

    tags = how.selection.index and indexes_tags(store, PROFILES[how.profile] if how.profile else None)
    return how._replace(selection=replace(how.selection, tags=tags))


def _look(store: ReadOnlyStore, how: HowToRebuild) -> int:
    from rmqctl.operations.rebuild.rebuild import Rebuild

    rebuild = Rebuild(store, how.selection, None, threads=how.threads, scan=how.scan)
    audit = _audit_beside(rebuild, store)
    with scan_progress(store, how.progress_mode, "rebuild"):
        rebuild.run()
    plan = RebuildView(rebuild, store, store.path.root, audit, NextStart(how.profile, how.threads))
    with plan_shown(dry_run=True):
        plan.print_all(how.output)
    note_owner(store.path.root, store.path.commitlogs)
    return int(ExitCode.FINDINGS if plan.differs else ExitCode.CLEAN)


def _make(store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool) -> int:
    from rmqctl.logfile.writable_storage import WritableStorage
    from rmqctl.operations.rebuild.rebuild import Rebuild
    from rmqctl.store.journal.transaction import Journal

    root = store.path.root
    act_as_owner(root, store.path.commitlogs)
    with (
        ChangeInterruption(at_once=how.scan is not None) as interruption,
        Journal.begin(
            root, "rebuild", _words(how.selection), WritableStorage.like(store.storage), go_on=resume
        ) as journal,
    ):
        store.check_as_it_was(fingerprint)
        rebuild = Rebuild(store, how.selection, journal.staging, threads=how.threads, scan=how.scan)
        if resume:
            _go_on(rebuild, store, journal)
        audit = None if resume else _audit_beside(rebuild, store)
        with scan_progress(store, how.progress_mode, "rebuild"):
            finished = rebuild.run(lambda: interruption.noted)
        if not finished:
            journal.suspend()
            remark(
                f"interrupted at offset {rebuild.result.log.position}; nothing was changed; --resume continues from there"
            )
            return int(ExitCode.INTERRUPTED)
        rebuild.check()
        plan = RebuildView(rebuild, store, journal.staging, audit, NextStart(how.profile, how.threads))
        with plan_shown(dry_run=False):
            plan.print_all(how.output)
        with interruption.waiting():
            confirm("Put the rebuilt files in place?", yes=how.yes)
        store.check_as_it_was(fingerprint)  # once more: a starting broker does not mind the lock
        store.close()
        journal.execute(plan.todo, interruption.commit)
    remark(f"done; {undo_hint(root)}")
    return int(ExitCode.REPAIRED if plan.differs else ExitCode.CLEAN)


def _go_on(rebuild: Rebuild, store: ReadOnlyStore, journal: Journal) -> None:
    """Take over what the interrupted rebuild built, and report where this one resumes.

    Raises BadRequest where nothing can be used.
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
        f"resuming at step 1 of 2, reading the log, at offset {log.position} of {store.commit_log.queue.files[-1].end}: "
        f"{' and '.join(built)} of {counted(log.messages, 'message')} are built already (step 2 installs them)"
    )


def _audit_beside(rebuild: Rebuild, store: ReadOnlyStore) -> IndexAudit | None:
    """Return the audit that compares the existing index with the log while the log is read.

    None: there is none, or it is left alone.
    """
    from rmqctl.forensics.audit.index_audit import IndexAudit

    if not rebuild.selection.index or not store.index.files:
        return None
    audit = IndexAudit(store, rebuild.builder)
    rebuild.on_messages = audit.on_messages
    return audit


def _words(selection: Selection) -> str:
    of_topic = "" if selection.topic is None else f" of {selection.topic}"
    of_queue = "" if selection.queue_id is None else f"/{selection.queue_id}"
    made = [
        name
        for name, is_made in ((f"queues{of_topic}{of_queue}", selection.queues), ("index", selection.index))
        if is_made
    ]
    return f"rebuilt from the log: {' and '.join(made)}"
