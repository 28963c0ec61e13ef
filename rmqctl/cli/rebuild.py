"""`rmqctl rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.confirm import change_options, check_can_ask, confirm
from rmqctl.cli.first_run import prepared
from rmqctl.cli.interruption import Interruption
from rmqctl.cli.options import OFFSET, open_store, output_option, progress_option, store_argument, threads_option
from rmqctl.cli.render import print_document, print_table, progress, remark
from rmqctl.cli.repair_view import REPAIR_VERB, check_writable, note_assumed_sizes
from rmqctl.cli.verb import Verb
from rmqctl.errors import BadRequest, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.store.changes import Change
    from rmqctl.store.read_only_store import ReadOnlyStore
    from rmqctl.store.rebuild import Rebuild, Selection

WHAT = ("queues", "index", "all")
WORDS_OF_COUNTS = {
    "kept": "units stand for messages that are damaged, as the queues that are there have them",
    "repeated": "units lead to the message behind one that is lost, once more",
    "misnumbered": "messages have a queue offset that cannot be right: they get the next place",
    "again": "messages have a queue offset that their queue had already: they get no place",
    "anew": "times a queue began again at 0: its topic was deleted and made again",
}


@click.command(
    cls=Verb,
    exit_codes=REPAIR_VERB,
    examples=(
        ("rmqctl rebuild store all --dry-run", "what would be made, and how many units differ from those that are there"),
        ("rmqctl rebuild store queues --topic OrderPaid --yes", "the queues of one topic"),
        ("rmqctl rebuild store index --yes", "the index alone"),
        ("rmqctl undo store --yes", "take it back"),
    ),
)
@store_argument
@click.argument("what", type=click.Choice(WHAT))
@click.option("--topic", help="Only the queues of this topic.")
@click.option("--queue", "queue_id", type=OFFSET, help="Only this queueId of the topic.")
@click.option("--all-topics", is_flag=True, help="Queues of topics, too, that config/topics.json does not list: deleted ones.")
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
    message that is in the log gets its unit, those behind damage too. A queue begins with its first message that the log still
    has; a queue without one stays as it is. Topics that were deleted get none.

    File sizes are those of the files that are there. Where there are none, give --broker-conf, or they are the broker's own.

    Exit 3: made; 1: with --dry-run. Ctrl-C leaves the store as it was; --resume goes on with it then.
    """
    from rmqctl.store.rebuild import Rebuild

    selection = _selection(what, asked)
    opened = open_store(store, broker_conf, follow_links)
    _check_store(opened, selection)
    check_can_ask(yes=yes or dry_run)
    prepared(Rebuild.prepare)
    if dry_run:
        return _look(opened, selection, threads, output, progress_mode)
    return _make(opened, selection, threads, output, progress_mode, yes=yes, resume=resume)


def _selection(what: str, asked: dict[str, Any]) -> Selection:
    from rmqctl.store.rebuild import Selection

    if asked["queue_id"] is not None and asked["topic"] is None:
        raise click.UsageError("--queue is a queue of a topic: give --topic, too")
    if what != "queues" and asked["topic"] is not None:
        raise click.UsageError("the index is one for all topics: --topic goes with `queues`")
    return Selection(queues=what != "index", index=what != "queues", **asked)


def _check_store(store: ReadOnlyStore, selection: Selection) -> None:
    root = str(store.path.root)
    check_writable(store)
    if not store.commit_log.queue.files:
        raise BadRequest("there is no commit log file to make anything from", path=root)
    if store.partly_read:
        raise BadRequest("a part of the store cannot be read, or lies behind a link: `rmqctl verify` shows which", path=root)
    note_assumed_sizes(store, queues=selection.queues, index=selection.index)


def _look(store: ReadOnlyStore, selection: Selection, threads: int, output: str, progress_mode: str) -> int:
    from rmqctl.store.rebuild import Rebuild
    from rmqctl.store.rebuild_plan import changes

    rebuild = Rebuild(store, selection, None, threads=threads)
    with progress(progress_mode, store.commit_log.size, "rebuild") as advance:
        store.commit_log.on_progress = advance
        rebuild.run()
    _Plan(rebuild, store, changes(rebuild, store, store.path.root)).print_all(output)
    return int(ExitCode.FINDINGS)


def _make(store: ReadOnlyStore, selection: Selection, threads: int, output: str, progress_mode: str, *, yes: bool, resume: bool) -> int:
    from rmqctl.logfile.writable_storage import WritableStorage
    from rmqctl.store.journal import Journal
    from rmqctl.store.rebuild import Rebuild
    from rmqctl.store.rebuild_plan import changes

    root = store.path.root
    with (
        Interruption() as interruption,
        Journal.begin(root, "rebuild", _words(selection), WritableStorage(root), go_on=resume) as journal,
    ):
        rebuild = Rebuild(store, selection, journal.staging, threads=threads)
        if resume:
            rebuild.go_on()
        with progress(progress_mode, store.commit_log.size, "rebuild") as advance:
            store.commit_log.on_progress = advance
            finished = rebuild.run(lambda: interruption.noted)
        if not finished:
            journal.suspend()
            remark(f"interrupted at offset {rebuild.result.log.position}; nothing was changed, and --resume goes on from there")
            return int(ExitCode.INTERRUPTED)
        rebuild.check()
        todo = changes(rebuild, store, journal.staging)
        plan = _Plan(rebuild, store, todo)
        if not yes:
            plan.print_all(output)
            with interruption.waiting():
                confirm("Put them in their places?", yes=yes)
        if interruption.noted:
            return int(ExitCode.INTERRUPTED)
        store.close()
        journal.execute(todo)
    if yes:
        plan.print_all(output)
    remark(f"done; `rmqctl undo {root} --yes` takes it back")
    return int(ExitCode.REPAIRED)


def _words(selection: Selection) -> str:
    of_topic = "" if selection.topic is None else f" of {selection.topic}"
    of_queue = "" if selection.queue_id is None else f"/{selection.queue_id}"
    made = [name for name, is_made in ((f"queues{of_topic}{of_queue}", selection.queues), ("index", selection.index)) if is_made]
    return f"made anew from the log: {' and '.join(made)}"


class _Plan:
    """What is done, for people and scripts; it is all known before anything changes."""

    def __init__(self, rebuild: Rebuild, store: ReadOnlyStore, todo: Sequence[Change]) -> None:
        from rmqctl.store.rebuild_plan import index_plan, queue_plans

        self._result = rebuild.result
        self._queues = queue_plans(rebuild, store)
        self._index = index_plan(rebuild, store)
        self._todo = todo

    def print_all(self, output: str) -> None:
        """The queues and the index on stdout, what is special about them on stderr."""
        if output == "json":
            print_document("rebuild", self._document())
        else:
            self._print_tables()
        self._remark()

    def _document(self) -> dict[str, Any]:
        result = self._result
        return {
            "minPhyOffset": result.begin,
            "maxPhyOffset": result.log.position,
            "messages": result.log.messages,
            "damagedPlaces": result.log.damages,
            "seconds": round(result.seconds, 6),
            "queues": [queue.to_json() for queue in self._queues],
            "unitsDiffer": self._units_differ,
            "index": self._index.to_json() if self._index is not None else None,
            "deletedTopics": [{"topic": topic, "messages": count} for topic, count in result.left_out.items()],
            "asTheyAre": [{"topic": topic, "queueId": queue_id} for topic, queue_id in sorted(result.as_they_are)],
            "actions": [change.to_json() for change in self._todo],
        }

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
            print_table(["INDEX", "NOW", "THEN"], [["files", index.files_now, index.files], ["entries", index.entries_now, index.entries]])

    def _remark(self) -> None:
        result = self._result
        remark(
            f"{result.log.messages} messages and {result.log.damages} damaged places from {result.begin} to {result.log.position}, "
            f"read in {result.seconds:.2f} s; {self._units_differ} units differ from those that are there"
        )
        for name, what in WORDS_OF_COUNTS.items():
            found = sum(getattr(counts, name) for counts in result.queues)
            if found:
                remark(f"{found} {what}")
        for topic, count in result.left_out.items():
            remark(f"{count} messages of topic {topic}, which topics.json does not list, get no queue (--all-topics makes it)")
        if result.as_they_are:
            remark(f"{len(result.as_they_are)} queues stay as they are: the log has no message of them any more")
        if result.gone:
            remark(f"{len(result.gone)} queues go: their topic is not listed, or they point to what the log has not")
