"""The checks before a repair, and the output of a repair's plan."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import print_line_of_text, print_table, print_verdict, remark
from rmqctl.cli.output.tone import Tone
from rmqctl.cli.shared.change import Commit, LogChangeOptions, PlannedChange, Words, carry_out, journaled
from rmqctl.cli.shared.options import scan_progress, target_words
from rmqctl.cli.shared.verb import CHANGE_VERB
from rmqctl.errors import READ_ALL_HINT, ExitCode, Unreadable
from rmqctl.operations.plan import RebuildTimers
from rmqctl.store.config.config_file import TOPICS_CONFIG
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqctl.operations.plan import RepairPlan, Step
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.recovery.data_loss import QueueOutcome

STEPS_SHOWN = 12
_HEAL = re.compile("`(rmqctl heal .*?)`")  # as `notes_of_healable` proposes it
AGREE = "that queues and index then agree with"
REPAIR_VERB = (*CHANGE_VERB, ExitCode.REPAIRED)
# the text for several steps of one kind: their number, and their folder or topic
WORDS_OF_STEPS = {
    "add-file": ("add {} to {place}", "missing file"),
    "delete": ("delete {} of {place}", "item"),
    "rebuild-queue": ("rebuild {} of {place}", "queue"),
    "resize": ("give {} of {place} the right length", "file"),
    "write": ("put placeholders into {} of {place}", "range"),
    "zero": ("zero {} of {place}", "range"),
}


def notes_of_healable(store: ReadOnlyStore, records: int, threads: int, what: str) -> Iterator[str]:
    """Yield a note if `heal` brings back records; `what` becomes of them otherwise."""
    from rmqctl.operations.heal.plan import offered

    found = offered(store, records, threads)
    if found is not None:
        yield f"{found.offer} {what}: see `rmqctl heal {target_words(store.path.root)} --dry-run` first"


def heal_first(plan: RepairPlan) -> str:
    """Return the command by which `heal` shows what it would bring back, or ""."""
    return "".join(_HEAL.findall(" ".join(plan.notes))[:1])


def check_writable(store: ReadOnlyStore, *, log_stays: bool = False, refills: bool = False) -> None:
    """Check that no broker has the store open, then call `check_complete`."""
    from rmqctl.store.journal.journals import check_not_in_use

    check_not_in_use(store.storage, store.path.root)
    check_complete(store, log_stays=log_stays, refills=refills)


def check_complete(store: ReadOnlyStore, *, log_stays: bool = False, refills: bool = False) -> None:
    """Check that rmqctl can read all parts of a store that a repair may change.

    Raises NeedsRecovery if an earlier change is unfinished. Raises BadRequest if broker.conf and the store have
    different file sizes. Raises LayoutNotSupported if the store is of 3.x, or if a topic has queues of two types.
    Raises Unreadable if a part cannot be read. If an unreadable log counted as a missing log, the repair would delete
    all queues. With `refills`, the plan removes queues in RocksDB if it changes what they lead to.
    """
    from rmqctl.store.journal.journals import check_none_unfinished
    from rmqctl.store.read.version_guess import looks_like_3x, store_of_3x

    check_none_unfinished(store.storage, store.path.root)
    store.path.check_can_be_changed(log_stays=log_stays, refills=refills)
    if looks_like_3x(store):
        raise store_of_3x(store)
    if refills:
        store.check_database()
    queues = len(store.queues)
    store.config(TOPICS_CONFIG)  # says which queues are batch queues
    if store.partly_read and not (refills and store.is_only_database_unreadable):
        what = "a part of it was not read: `rmqctl verify` shows which"
        raise Unreadable(what, path=str(store.path.root), hint=store.path.unread_databases or READ_ALL_HINT)
    store.check_one_queue_type()
    store.check_size_of_conf()
    if queues and not store.commit_log.queue.files:
        raise Unreadable(
            f"there are {queues} queues, but no log",
            path=str(store.path.root),
            hint="if the log is elsewhere, give --broker-conf",
        )


def check_index_can_be_rebuilt(store: ReadOnlyStore, plan: RepairPlan) -> None:
    """Check that rmqctl knows whether a rebuilt index needs TAGS as keys.

    Nothing is checked if the plan does not rebuild the index. Raises BadRequest if neither the store nor --profile
    shows whether the index needs TAGS.
    """
    from rmqctl.store.read.index.tag_index import indexes_tags

    if plan.rebuilds_index:
        indexes_tags(store, plan.profile)


def assumed_sizes(store: ReadOnlyStore, *, queues: bool, index: bool, timers: bool = False) -> Iterator[str]:
    """Yield a remark for each default size that new files get: no file shows one."""
    from rmqctl.store.config.file_sizes import TIMER_LOG_FILE_SIZE, Geometry
    from rmqctl.store.read.store_file_sizes import index_shape
    from rmqctl.store.timer.timer_start import log_file_size

    usual = Geometry()
    sized = [queue for queue in store.queues.values() if queue.queue.files]
    if queues and not sized and not store.conf.consumequeue_file_size:
        size = f"the broker's own size, {usual.consumequeue_file_size} bytes"
        yield f"no queue file shows a file size: using {size} (override with --broker-conf)"
    if index and not store.conf.index_slots and index_shape(store) is None:
        size = f"the broker's own, {usual.index_slots} slots, {usual.index_entries} entries"
        yield f"no index file shows a size: using {size} (override with --broker-conf)"
    if timers and log_file_size(store) is None:
        size = f"the broker's own size, {TIMER_LOG_FILE_SIZE} bytes"
        yield f"no whole file of timerlog shows a size: using {size} (override with --broker-conf)"


def words_of_loss(plan: RepairPlan) -> str:
    """Return how many messages and bytes a plan loses, as text."""
    return f"{counted(plan.lost.records, 'message')}, {counted(plan.lost.bytes, 'byte')}"


def plan_json(plan: RepairPlan) -> dict[str, Any]:
    """Return the keys of a plan for the JSON document of a verb."""
    return {
        "minPhyOffset": plan.min_phy_offset,
        "maxPhyOffset": plan.max_phy_offset,
        "lost": plan.lost._asdict(),
        "queues": [queue.to_json() for queue in plan.queues],
        "actions": [step.to_json() for step in plan.steps],
        "startProblem": plan.start_problem,
        "notes": list(plan.notes),
    }


def carry_out_repair(
    store: ReadOnlyStore, plan: RepairPlan, show: Callable[[], None], words: Words, how: LogChangeOptions
) -> int:
    """Carry out a repair, and return the exit code. `show` prints the plan."""
    problem, queues, index = plan.start_problem, bool(plan.queues_to_rebuild), plan.rebuilds_index
    timers = any(isinstance(step.action, RebuildTimers) for step in plan.steps)

    def warm_up() -> None:
        from rmqctl.operations.rebuild.rebuild import Rebuild

        if queues or index:
            Rebuild.warm_up(store.allocated)

    def make(commit: Commit) -> str:
        from rmqctl.operations.repair.execute import build

        with scan_progress(store, "repair"):
            return journaled(store, words, partial(build, store, plan, how.threads), commit)

    repaired = ExitCode.PARTIAL if problem else ExitCode.REPAIRED
    change = PlannedChange(
        store.path.root,
        store.path.commitlogs,
        show,
        words.question,
        make,
        is_due=bool(plan.steps),
        remarks=assumed_sizes(store, queues=queues, index=index, timers=timers),
        first=heal_first(plan),
        code=repaired if plan.steps else ExitCode.FINDINGS if problem else ExitCode.CLEAN,
        warm_up=warm_up,
    )
    return carry_out(change, how)


def print_loss(plan: RepairPlan) -> None:
    """Print on a terminal, as the answer, what the plan loses."""
    if plan.steps:
        lost = f"loses {words_of_loss(plan)}" if plan.lost.records or plan.lost.bytes else "loses no message"
        words = f"{lost}; the log then ends at {plan.max_phy_offset}; {counted(len(plan.steps), 'step')}"
        print_verdict(words, Tone.BAD if plan.lost.records else Tone.GOOD)


def print_repair(plan: RepairPlan, *, explain: bool) -> None:
    """Print the queues that lose messages, and the steps of the plan.

    With `explain`, print all queues, and each step on its own line.
    """
    _print_queues([queue for queue in plan.queues if queue.lost or explain])
    _print_steps(plan.steps, each=explain or len(plan.steps) <= STEPS_SHOWN)
    for note in plan.notes:
        remark(f"note: {note}")


def _print_queues(queues: Sequence[QueueOutcome]) -> None:
    if queues:
        rows = [
            [queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, queue.lost or None] for queue in queues
        ]
        print_table(["TOPIC", "QUEUE", "MIN", "MAX", "LOST"], rows)
        print()


def _print_steps(steps: Sequence[Step], *, each: bool) -> None:
    if not steps:
        print("nothing to do")
    elif each:
        for step in steps:
            print_line_of_text(step.describe())
    else:
        kinds: dict[tuple[str, str], list[Step]] = {}
        for step in steps:
            kinds.setdefault((step.to_json()["action"], _place(step)), []).append(step)
        for (action, place), of_kind in kinds.items():
            print_line_of_text(of_kind[0].describe() if len(of_kind) == 1 else _in_words(action, place, len(of_kind)))
        print("(--explain shows each)")


def _in_words(action: str, place: str, count: int) -> str:
    words, noun = WORDS_OF_STEPS[action]
    return words.format(counted(count, noun), place=place)


def _place(step: Step) -> str:
    found = step.to_json()
    return str(found.get("path", found.get("topic", ""))).split("/")[0]
