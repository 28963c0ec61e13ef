"""`rmqctl rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.cli.output.render import print_document, print_line, print_table, remark
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
from rmqctl.cli.views.repair_view import REPAIR_VERB, check_writable, note_assumed_sizes, words_of_loss
from rmqctl.cli.views.scan_progress import scan_progress
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.forensics.audit.index_audit import IndexAudit
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.rebuild.rebuild import Rebuild, Scan, Selection
    from rmqctl.operations.rebuild.rebuild_plan import IndexPlan, QueuePlan
    from rmqctl.store.journal.transaction import Journal
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore

WHAT = ("queues", "index", "all")
WORDS_OF_COUNTS = {
    "kept": "units stand for messages that are damaged, as the queues that are there have them",
    "repeated": "units lead to the message behind one that is lost, once more",
    "misnumbered": "messages have a queue offset that cannot be right: they get the next place",
    "duplicates": "messages have a queue offset that their queue had already: they get no place and count as lost",
    "anew": "times a queue began again at 0: its topic was deleted and made again",
}


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples=(
        (
            "rmqctl rebuild store all --dry-run",
            "what would be made, and how many units differ from those that are there",
        ),
        ("rmqctl rebuild store queues --topic OrderPaid --yes", "the queues of one topic"),
        ("rmqctl rebuild store index --yes", "the index alone"),
        ("rmqctl undo store --yes", "take it back"),
    ),
)
@store_argument
@click.argument("what", type=click.Choice(WHAT))
@click.option("--topic", help="Only the queues of this topic.")
@click.option("--queue", "queue_id", type=OFFSET, help="Only this queueId of the topic.")
@click.option(
    "--all-topics", is_flag=True, help="Queues of topics, too, that config/topics.json does not list: deleted ones."
)
@profile_option("Make the index as brokers of this version do.")
@click.option("--resume", is_flag=True, help="Go on with a rebuild that was interrupted.")
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
    """Make queues and index anew from the log.

    They are made beside the old ones, checked, and put in their places; the old ones are kept until `rmqctl undo --drop`. Each
    message that is in the log gets its unit, those behind damage too; no body is checked (verify does that). A queue begins with its
    first message that the log still has; a queue without one stays as it is. Topics that were deleted get none.

    File sizes are those of the files that are there. Where there are none, give --broker-conf, or they are the broker's own.

    Exit 3: made, and what was there differed from it; 0: made, and nothing differed. With --dry-run 1 where something differs, 0
    where nothing does. The plan also simulates the broker's next start: messages that it would no longer serve count as lost.
    Ctrl-C leaves the store as it was; --resume then continues the rebuild. While a broker has the store open nothing
    is looked at either: exit 11.
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
    """What is built, for brokers of which `profile`, and how it is reported; the log is read by `threads`, or by `scan`."""

    selection: Selection
    dry_run: bool
    yes: bool
    output: str
    progress_mode: str
    threads: int = 1
    scan: Scan | None = None
    profile: str | None = None


def prepare_kernels() -> None:
    """Those that a rebuild and the audit beside it need."""
    from rmqctl.kernels import index_match, queue_offset_range, queue_simulate
    from rmqctl.kernels.warm_up import warm_up
    from rmqctl.operations.rebuild.rebuild import Rebuild

    Rebuild.warm_up()
    warm_up(index_match, queue_simulate, queue_offset_range)


def selection(what: str, asked: dict[str, Any]) -> Selection:
    """What the options ask for. Raises UsageError where it makes no sense."""
    from rmqctl.operations.rebuild.rebuild import Selection

    if asked["queue_id"] is not None and asked["topic"] is None:
        raise click.UsageError("--queue is a queue of a topic: give --topic, too")
    if what != "queues" and asked["topic"] is not None:
        raise click.UsageError("the index is one for all topics: --topic goes with `queues`")
    return Selection(queues=what != "index", index=what != "queues", **asked)


def check_store(store: ReadOnlyStore) -> None:
    """Before anything is read. Raises BadRequest, and as `check_writable`."""
    check_writable(store)
    if not store.commit_log.queue.files:
        raise BadRequest("there is no commit log file to make anything from", path=str(store.path.root))


def look_or_make(store: ReadOnlyStore, fingerprint: Fingerprint, how: HowToRebuild, *, resume: bool = False) -> int:
    """The plan, and its execution where that is wanted, of a store whose files were as `fingerprint` say when it was opened; the exit status."""
    how = _for_profile(store, how)
    note_assumed_sizes(store, queues=how.selection.queues, index=how.selection.index)
    return _look(store, how) if how.dry_run else _make(store, fingerprint, how, resume=resume)


def _for_profile(store: ReadOnlyStore, how: HowToRebuild) -> HowToRebuild:
    """Choose whether TAGS go into the index. Raises BadRequest where neither the store nor --profile shows it."""
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
    plan = _Plan(rebuild, store, store.path.root, audit, how)
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
                f"interrupted at offset {rebuild.result.log.position}; nothing was changed, and --resume goes on from there"
            )
            return int(ExitCode.INTERRUPTED)
        rebuild.check()
        plan = _Plan(rebuild, store, journal.staging, audit, how)
        with plan_shown(dry_run=False):
            plan.print_all(how.output)
        with interruption.waiting():
            confirm("Put them in their places?", yes=how.yes)
        store.check_as_it_was(fingerprint)  # once more: a starting broker does not mind the lock
        store.close()
        journal.execute(plan.todo, interruption.commit)
    remark(f"done; {undo_hint(root)}")
    return int(ExitCode.REPAIRED if plan.differs else ExitCode.CLEAN)


def _go_on(rebuild: Rebuild, store: ReadOnlyStore, journal: Journal) -> None:
    """Take over what the interrupted rebuild built, and report where this one resumes. Raises BadRequest where nothing can be used."""
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
    """Compares the index that is there with the log while that is read; None: there is none, or it is left alone."""
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
    return f"made anew from the log: {' and '.join(made)}"


class _Plan:
    """What is done, for people and scripts; it is all known before anything changes.

    Raises BadRequest where there is nothing of what was asked for.
    """

    def __init__(
        self, rebuild: Rebuild, store: ReadOnlyStore, staging: Path, audit: IndexAudit | None, how: HowToRebuild
    ) -> None:
        from rmqctl.operations.rebuild.rebuild_plan import changes, index_plan, queue_plans, repair_plan
        from rmqctl.store.journal.changes import Install

        _check_found(rebuild, store)
        self.todo = changes(rebuild, store, staging)
        self._store = store.path.root
        self._result = rebuild.result
        self._queues = queue_plans(rebuild, store)
        self._index = index_plan(rebuild, store)
        self._index_differs = False
        self._repair = repair_plan(rebuild, self._queues, self.todo)
        self.differs = self._units_differ > 0 or any(not isinstance(change, Install) for change in self.todo)
        self.differs |= not all(rebuild.files_are_right((plan.topic, plan.queue_id)) for plan in self._queues)
        if self._index is not None:
            self._index_differs = _index_differs(self._index, store, audit)
            self.differs |= self._index_differs
        if any(queue.differ for queue in self._queues):
            self._repair = _with_next_start(store, self._repair, self._queues, how)

    def print_all(self, output: str) -> None:
        """The queues and the index on stdout, what is special about them on stderr."""
        if output == "json":
            print_document("rebuild", self._document())
        elif output == "jsonl":
            print_line("rebuild", self._document())
        else:
            self._print_tables()
        self._remark()

    def _document(self) -> dict[str, Any]:
        result = self._result
        return {
            "store": str(self._store),
            "minPhyOffset": result.begin,
            "maxPhyOffset": result.log.position,
            "messages": result.log.messages,
            "damagedPlaces": result.log.damages,
            "seconds": round(result.seconds, 6),
            "lost": self._repair.lost._asdict(),
            "queues": [queue.to_json() | self._lost_of(queue) for queue in self._queues],
            "unitsDiffer": self._units_differ,
            "index": self._index.to_json() if self._index is not None else None,
            "deletedTopics": [{"topic": topic, "messages": count} for topic, count in result.left_out.items()],
            "unchanged": [{"topic": topic, "queueId": queue_id} for topic, queue_id in sorted(result.unchanged)],
            "actions": [change.to_json() for change in self.todo],
            "notes": list(self._repair.notes),
        }

    def _lost_of(self, plan: QueuePlan) -> dict[str, int]:
        lost = {(queue.topic, queue.queue_id): queue.lost for queue in self._repair.queues}.get(
            (plan.topic, plan.queue_id)
        )
        return {"lostMessages": lost} if lost else {}

    @property
    def _units_differ(self) -> int:
        return sum(queue.differ for queue in self._queues)

    def _print_tables(self) -> None:
        if self._queues:
            rows = [
                [each.topic, each.queue_id, each.min_offset, each.max_offset, each.units_now, each.units, each.differ]
                for each in self._queues
            ]
            print_table(["TOPIC", "QUEUE", "MIN", "MAX", "UNITS NOW", "THEN", "DIFFER"], rows)
        if self._queues and self._index is not None:
            print()
        if self._index is not None:
            index = self._index
            print_table(
                ["INDEX", "NOW", "THEN"],
                [["files", index.files_now, index.files], ["entries", index.entries_now, index.entries]],
            )

    def _remark(self) -> None:
        result = self._result
        remark(
            f"read {counted(result.log.messages, 'message')} and {counted(result.log.damages, 'damaged place')} "
            f"from {result.begin} to {result.log.position} in {result.seconds:.2f} s; "
            f"{counted(self._units_differ, 'queue unit')} would change"
        )
        if self._index_differs:
            remark("the index differs from what the log gives")
        for name, what in WORDS_OF_COUNTS.items():
            found = sum(getattr(counts, name) for counts in result.queues)
            if found:
                remark(f"{found} {what}")
        if self._repair.lost.records:
            remark(f"lost: {words_of_loss(self._repair)}")
        for note in self._repair.notes:
            remark(f"note: {note}")
        for topic, count in result.left_out.items():
            remark(
                f"{counted(count, 'message')} of topic {topic}, which neither topics.json nor a group's offset names, get no queue "
                "(--all-topics makes it)"
            )
        if result.unchanged:
            remark(f"{counted(len(result.unchanged), 'queue')} without a message in the log: left unchanged")
        if result.removed:
            remark(f"{len(result.removed)} queues go: their topic is not listed, or they point to what the log has not")


def _with_next_start(store: ReadOnlyStore, plan: RepairPlan, queues: list[QueuePlan], how: HowToRebuild) -> RepairPlan:
    from rmqctl.format.profile import PROFILES
    from rmqctl.operations.rebuild.rebuild_plan import built_spans
    from rmqctl.operations.repair.rehearsal import with_next_start
    from rmqctl.store.read.version_guess import guess_profile

    profile = PROFILES[how.profile] if how.profile else guess_profile(store)
    return with_next_start(store, plan, profile, built_spans(queues), how.threads)


def _check_found(rebuild: Rebuild, store: ReadOnlyStore) -> None:
    topic, queue_id, result = rebuild.selection.topic, rebuild.selection.queue_id, rebuild.result
    if topic is None or result.queues or result.removed or result.unchanged:
        return
    name = f"topic {topic}" if queue_id is None else f"queue {topic}/{queue_id}"
    what = f"no {name}: there are neither queues nor messages of it"
    hint = "`rmqctl queue` lists the queues"
    if topic in result.left_out:
        what, hint = f"{name} is not in config/topics.json: it was deleted", "--all-topics makes it all the same"
    raise BadRequest(what, path=str(store.path.root), hint=hint)


def _index_differs(plan: IndexPlan, store: ReadOnlyStore, audit: IndexAudit | None) -> bool:
    """Whether the index that is there says anything else than the new one; without an audit (--resume) it counts as different."""
    if (plan.files, plan.entries) != (plan.files_now, plan.entries_now):
        return True
    if audit is None:
        return plan.files > 0
    audit.finish()
    return bool(audit.findings) or any(
        index_file.file.size != store.index.usual_size for index_file in store.index.files
    )
