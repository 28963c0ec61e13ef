"""The output of a rebuild: the plan or the result for queues and index."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.render import is_terminal, print_document, print_line, print_table, print_verdict, remark
from rmqctl.cli.output.tone import Tone
from rmqctl.cli.views.change.repair_view import AGREE, heal_first, notes_of_healable, words_of_loss
from rmqctl.errors import BadRequest
from rmqctl.forensics.witness.diagnosis import OFFERED_MAX
from rmqctl.store.config.store_path import Layout
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.forensics.finding import Finding
    from rmqctl.format.profile import Profile
    from rmqctl.operations.plan import RepairPlan
    from rmqctl.operations.rebuild.rebuild import Rebuild
    from rmqctl.operations.rebuild.rebuild_plan import IndexPlan, QueuePlan
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WORDS_OF_COUNTS = {
    "kept": "units stand for messages that are damaged, as the existing queues have them",
    "repeated": "units lead to the message after one that is lost, once more",
    "misnumbered": "messages have another place in their queue than QUEUEOFFSET says",
    "duplicates": "messages have a queue offset that their queue had already: they get no place and count as lost",
    "anew": "times a queue began again at 0: its topic was deleted and made again",
}


class RebuildView:
    """The changes of a rebuild, as tables and as JSON.

    The view is made before the store is changed. The next start of the broker is simulated for `profile` (None: the
    profile that the store shows). Raises BadRequest if the store contains nothing that can be rebuilt.
    """

    def __init__(
        self, rebuild: Rebuild, store: ReadOnlyStore, staging: Path, profile: Profile | None, threads: int
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
            self._index_differs = _index_differs(self._index, store, rebuild.result.index_findings)
            self.differs |= self._index_differs
        if store.path.layout is Layout.FILES and any(queue.differ for queue in self._queues):
            self._repair = _with_next_start(store, self._repair, self._queues, profile, threads)
        if self.differs and self._units_differ <= OFFERED_MAX:
            notes = notes_of_healable(store, self._result.log.messages, threads, AGREE)
            self._repair = replace(self._repair, notes=(*self._repair.notes, *notes))

    @property
    def first(self) -> str:
        """The command to look at before the rebuild, or ""."""
        return heal_first(self._repair)

    def print_all(self, output: str) -> None:
        """Print the queues and the index on stdout, and remarks on stderr."""
        if output == "json":
            print_document("rebuild", self._document())
        elif output == "jsonl":
            print_line("rebuild", self._document())
        else:
            self._print_tables()
        self._remark()

    def _document(self) -> dict[str, Any]:
        result = self._result
        lost = {(queue.topic, queue.queue_id): queue.lost for queue in self._repair.queues}
        return {
            "store": str(self._store),
            "minPhyOffset": self._repair.min_phy_offset,
            "maxPhyOffset": result.log.position,
            "messages": result.log.messages,
            "damagedPlaces": result.log.damages,
            "seconds": round(result.seconds, 6),
            "lost": self._repair.lost._asdict(),
            "queues": [queue.to_json() | _lost_of(lost, queue) for queue in self._queues],
            "unitsDiffer": self._units_differ,
            "index": self._index.to_json() if self._index is not None else None,
            "deletedTopics": [{"topic": topic, "messages": count} for topic, count in result.left_out.items()],
            "unchanged": [{"topic": topic, "queueId": queue_id} for topic, queue_id in sorted(result.unchanged)],
            "actions": [change.to_json() for change in self.todo],
            "notes": list(self._repair.notes),
        }

    @property
    def _units_differ(self) -> int:
        return sum(queue.differ for queue in self._queues)

    def _print_tables(self) -> None:
        changed = (
            f"{counted(self._units_differ, 'queue unit')} would change" if self.differs else "nothing would change"
        )
        print_verdict(changed, Tone.ATTENTION if self.differs else Tone.GOOD)
        queues = [each for each in self._queues if each.differ or not is_terminal(sys.stdout)]
        if queues:
            rows = [
                [each.topic, each.queue_id, each.min_offset, each.max_offset, each.units_now, each.units, each.differ]
                for each in queues
            ]
            print_table(["TOPIC", "QUEUE", "MIN", "MAX", "UNITS NOW", "THEN", "DIFFER"], rows)
        if queues and self._index is not None:
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
            f"from {self._repair.min_phy_offset} to {result.log.position} in {result.seconds:.2f} s; "
            f"{counted(self._units_differ, 'queue unit')} would change"
        )
        if result.built_here:
            remark(f"{result.built_here}: this machine wrote the new files instead")
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
                f"{counted(count, 'message')} of topic {topic}, which neither topics.json nor a group's offset names, "
                "get no queue "
                "(--all-topics makes it)"
            )
        if result.unchanged:
            remark(f"{counted(len(result.unchanged), 'queue')} without a message in the log: left unchanged")
        if result.removed:
            remark(
                f"{len(result.removed)} queues are removed: their topic is not listed, or they point to offsets that "
                "the log does not have"
            )


def _with_next_start(
    store: ReadOnlyStore, plan: RepairPlan, queues: list[QueuePlan], profile: Profile | None, threads: int
) -> RepairPlan:
    from rmqctl.operations.rebuild.rebuild_plan import built_spans
    from rmqctl.operations.repair.rehearsal import with_next_start
    from rmqctl.store.read.version_guess import guess_profile

    return with_next_start(store, plan, profile or guess_profile(store), built_spans(queues), threads)


def _check_found(rebuild: Rebuild, store: ReadOnlyStore) -> None:
    topic, queue_id, result = rebuild.selection.topic, rebuild.selection.queue_id, rebuild.result
    if topic is None or result.queues or result.removed or result.unchanged:
        return
    name = f"topic {topic}" if queue_id is None else f"queue {topic}/{queue_id}"
    what = f"no {name}: there are neither queues nor messages of it"
    hint = "`rmqctl queue` lists the queues"
    if topic in result.left_out:
        what, hint = f"{name} is not in config/topics.json: it was deleted", "--all-topics rebuilds it anyway"
    raise BadRequest(what, path=str(store.path.root), hint=hint)


def _lost_of(lost: dict[QueueKey, int], plan: QueuePlan) -> dict[str, int]:
    """Return the JSON key `lostMessages`, or no key if the queue loses no message."""
    count = lost.get((plan.topic, plan.queue_id))
    return {"lostMessages": count} if count else {}


def _index_differs(plan: IndexPlan, store: ReadOnlyStore, findings: Sequence[Finding] | None) -> bool:
    """Return whether the existing index differs from the new index.

    If it was not compared (after --resume), any new index that has files counts as different.
    """
    if (plan.files, plan.entries) != (plan.files_now, plan.entries_now):
        return True
    if findings is None:
        return plan.files > 0
    return bool(findings) or any(index_file.file.size != store.index.usual_size for index_file in store.index.files)
