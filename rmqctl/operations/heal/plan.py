"""The plan of `rmqctl heal`: what comes back, from where, and what confirms it.

1. `verify` and the scan of the log name the records that something refutes.
2. What a replica has of missing and short files is planned as zeros (`missing.py`), which are damage, too.
3. For each, the witnesses choose among the candidates: a replica's record, one bit changed, or two of the body.
4. What is exact becomes a change of the log; nothing else is changed. What has several explanations is shown, and left.

The bytes that are written are those of the healed record that differ. Queues and index are not changed: they led to
the record before it was damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.errors import RmqctlError
from rmqctl.forensics.verify import Verification
from rmqctl.forensics.witness.diagnosis import NO_RECORD, OFFERED_MAX, RECORDS_MAX, SUSPECTS_MAX, diagnose
from rmqctl.forensics.witness.examine import COPY, Examination, Verdict
from rmqctl.format.message import Blank, Message
from rmqctl.operations.heal.missing import filled
from rmqctl.operations.heal.replica import Replica, ReplicaBytes, Run
from rmqctl.operations.plan import AddLogFile
from rmqctl.store.journal.changes import Resize, Write
from rmqctl.store.read.commit_log import NO_BLANK
from rmqctl.text import part_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.read_only_store import Fingerprint, ReadOnlyStore


class Healed(NamedTuple):
    """Bytes of the log that come back."""

    physical_offset: int
    size: int  # bytes
    how: str
    source: str  # where the bytes come from, for people
    witnesses: tuple[str, ...]
    messages: int  # in these bytes
    changes: tuple[Write | ReplicaBytes, ...]


class Ambiguous(NamedTuple):
    """A record with several explanations, or one that nothing corroborates."""

    physical_offset: int
    size: int  # bytes
    why: str
    candidates: tuple[dict[str, Any], ...]


class Lost(NamedTuple):
    """A damaged part of the log that stays as it is."""

    physical_offset: int
    size: int  # bytes
    why: str


Outcome = Healed | Ambiguous | Lost


@dataclass(frozen=True)
class HealPlan:
    """The parts of the log that come back, and those that do not."""

    outcomes: tuple[Outcome, ...]  # in log order
    fingerprint: Fingerprint  # of the store's files before they were read
    files: tuple[AddLogFile | Resize, ...] = ()  # log files that were missing or short
    end: int = 0  # of the log before; 0: of no log
    beyond: int = 0  # bytes that a replica has beyond the end, and that are not taken

    @property
    def healed(self) -> list[Healed]:
        """The parts that come back."""
        return [one for one in self.outcomes if isinstance(one, Healed)]

    @property
    def ambiguous(self) -> list[Ambiguous]:
        """The parts with several explanations."""
        return [one for one in self.outcomes if isinstance(one, Ambiguous)]

    @property
    def lost(self) -> list[Lost]:
        """The parts that do not come back."""
        return [one for one in self.outcomes if isinstance(one, Lost)]

    @property
    def changes(self) -> list[Write | ReplicaBytes | AddLogFile | Resize]:
        """The changes of the log files."""
        added = {file.path for file in self.files if isinstance(file, AddLogFile)}
        return [*self.files, *(change for one in self.healed for change in one.changes if change.path not in added)]

    @property
    def offer(self) -> str:
        """Say how much comes back, for other verbs."""
        return f"`rmqctl heal` brings back {part_of(len(self.healed), len(self.outcomes), 'damaged record')}"

    @property
    def messages(self) -> int:
        """The number of messages that come back."""
        return sum(one.messages for one in self.healed)

    def to_json(self) -> dict[str, Any]:
        """Return the keys of the document of `heal`."""
        return {
            "messages": self.messages,
            "healed": [*map(_to_json, self.healed)],
            "ambiguous": [*map(_to_json, self.ambiguous)],
            "lost": [*map(_to_json, self.lost)],
            "actions": [change.to_json() for change in self.changes],
        }


def _to_json(outcome: Outcome) -> dict[str, Any]:
    fields = outcome._asdict()
    shown = {name: value for name, value in fields.items() if name not in ("physical_offset", "messages", "changes")}
    return {"physicalOffset": outcome.physical_offset, **shown}


def offered(store: ReadOnlyStore, records: int, threads: int = 1) -> HealPlan | None:
    """Return what `heal` would bring back out of the store itself.

    None if that is nothing, if the log has too many `records` to be read only for this, or if heal refuses.
    """
    if records > RECORDS_MAX:
        return None
    try:
        plan = Healing(store, threads).plan(suspects_max=OFFERED_MAX)
    except (OSError, RmqctlError):
        return None
    return plan if plan.healed else None


class Healing:
    """Plans what brings the damaged records of a store back.

    `others` are replicas of the log by name; where they differ, a record comes from most of them or from none. With
    `tail`, what they have beyond the log's end is taken, too. Raises OSError.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        threads: int = 1,
        others: Mapping[str, CommitLog] | None = None,
        *,
        tail: bool = False,
        accept_single_bit: bool = False,
    ) -> None:
        self._fingerprint = store.fingerprint()
        self._others = others or {}
        self._store, self._files, self._end = filled(store, self._others.values(), tail=tail)
        self._log = self._store.commit_log
        self._verification = Verification(self._store, threads=threads)
        self._accept = accept_single_bit

    def warm_up(self) -> None:
        """Compile or load the kernels, unless the store is small."""
        self._verification.warm_up()

    def plan(self, suspects_max: int = SUSPECTS_MAX) -> HealPlan:
        """Return the plan. Raises AnotherLog, OSError and Unreadable."""
        self._verification.run()
        replicas = [Replica(self._store, name, log) for name, log in self._others.items()]
        examination, usual, damages, end = diagnose(
            self._store,
            self._verification.report.findings,
            suspects_max,
            accept_single_bit=self._accept,
            left_out=NO_RECORD - {NO_BLANK} if replicas else NO_RECORD,
        )
        for replica in replicas:
            replica.prove(usual.suspects)
        examination.find_copies([damage for damage in damages if damage.code != NO_BLANK])
        ends = {damage.physical_offset: damage.end for damage in damages if damage.message is None}
        if self._end > end:
            ends[end] = self._end
        places = {*usual.suspects, *ends, *(damage.physical_offset for damage in damages)}
        places |= {place for replica in replicas for place in (*replica.differing, *replica.replaced)}
        outcomes: list[Outcome] = []
        reached = 0
        for place in sorted(places):
            begin = max(place, reached) if place in ends else place
            if reached <= begin < ends.get(place, begin + 1):
                found = [*self._outcomes(examination, begin, ends.get(place), replicas)]
                reached = max([reached, *(one.physical_offset + one.size for one in found)])
                outcomes += found
        beyond = max([0, *(log.end()[0] - max(end, reached) for log in self._others.values())])
        return HealPlan(tuple(outcomes), self._fingerprint, tuple(self._filled(outcomes)), end, beyond)

    def _filled(self, outcomes: Sequence[Outcome]) -> Iterator[AddLogFile | Resize]:
        """Yield the files that are added, with what is in them, or made longer."""
        writes: dict[str, list[Write | ReplicaBytes]] = {}
        for change in (change for one in outcomes if isinstance(one, Healed) for change in one.changes):
            writes.setdefault(change.path, []).append(change)
        for path, file in self._files.items():
            if isinstance(file, Resize):
                yield file
            elif path in writes:
                yield file._replace(blocks=tuple(writes[path]))

    def _outcomes(
        self, examination: Examination, place: int, end: int | None, replicas: Sequence[Replica]
    ) -> Iterator[Outcome]:
        verdict = examination.examine(place, end)
        for replica in replicas:
            if (run := replica.original(place)) is not None:
                changes = tuple(replica.writes(run))
                size = run.end - place
                yield Healed(place, size, "placeholder", replica.name, ("same log",), run.messages, changes)
                return
        if verdict is None:
            differing = [replica for replica in replicas if place in replica.differing]
            if len(differing) > sum(replica.log.at(place) == self._log.at(place) for replica in replicas):
                yield from self._differing(examination, place, differing)
            return
        end = end or place + verdict.size
        while place < end:
            if verdict is None or verdict.physical_offset != place:
                verdict = examination.examine(place, end)
            runs = [(run, replica) for replica in replicas if (run := replica.run(place, end)) is not None]
            right = [(run, replica) for run, replica in runs if not _is_refuted(examination, run)]
            if right:
                agreed = _agreed(examination, right[0], replicas)
                whole = agreed[0] if agreed is not None else right[0][0].first
                if agreed is not None:
                    yield self._of_replica(*agreed, verdict)
                else:
                    shown = tuple(_shown(replica) for _, replica in runs)
                    yield Ambiguous(place, whole.end - place, "the replicas differ", shown)
                place = whole.end
                continue
            if runs and verdict is not None and verdict.is_exact:
                yield _conflict(verdict, runs[0][1])
                place += verdict.size
                continue
            begins = [replica.next_record(place, end) for replica in replicas]
            following = min([examination.next_place(place, end), *begins])
            outcome = self._of_verdict(verdict, place, following)
            if outcome is not None:
                yield outcome
            place = outcome.physical_offset + outcome.size if isinstance(outcome, Healed) else following

    def _of_verdict(self, verdict: Verdict | None, place: int, end: int) -> Outcome | None:
        if verdict is None:
            return Lost(place, end - place, "nothing has it whole")
        if verdict.is_exact:
            candidate = verdict.candidates[0]
            changes = tuple(_writes(self._log.queue, verdict.physical_offset, candidate.content))
            source = candidate.describe() if candidate.how == COPY else f"{candidate.describe()} of the record itself"
            messages = int(isinstance(candidate.message, Message))
            return Healed(place, verdict.size, candidate.how, source, verdict.witnesses, messages, changes)
        if verdict.candidates:
            shown = [{"how": one.how, "source": one.describe()} for one in verdict.candidates]
            if not verdict.is_damage:
                shown.append({"how": "as it is", "source": "its unit or its index entry is damaged"})
            return Ambiguous(place, verdict.size, verdict.why, tuple(shown))
        return Lost(place, end - place, verdict.why) if verdict.is_damage else None

    def _of_replica(self, run: Run, replica: Replica, verdict: Verdict | None) -> Outcome:
        """Take a run of a replica, unless the record's own bytes say otherwise."""
        size = run.end - run.begin
        witnesses: tuple[str, ...] = ("same log",)
        if verdict is not None and verdict.is_exact:
            candidate = verdict.candidates[0]
            if candidate.content != replica.read(run.begin, len(candidate.content)):
                return _conflict(verdict, replica)
            witnesses = (*witnesses, candidate.how)
        changes = tuple(replica.writes(run))
        witnesses += verdict.witnesses if verdict is not None else ()
        return Healed(run.begin, size, "replica", replica.name, witnesses, run.messages, changes)

    def _differing(self, examination: Examination, place: int, replicas: Sequence[Replica]) -> Iterator[Ambiguous]:
        """Yield a record that nothing refutes, and most replicas have otherwise."""
        shown = [_shown(replica) for replica in replicas if not examination.refutes(replica.differing[place])]
        if shown:
            size = replicas[0].differing[place].size
            here = {"how": "as it is", "source": str(self._store.path.root)}
            yield Ambiguous(place, size, "nothing says which bits are right", (here, *shown))


def _agreed(
    examination: Examination, found: tuple[Run, Replica], replicas: Sequence[Replica]
) -> tuple[Run, Replica] | None:
    """Return the part of a run up to where replicas differ.

    If they differ at its beginning, return the record that most of them have, or None.
    """
    run, replica = found
    place, messages = run.begin, 0
    while place < run.end and len(replicas) > 1:
        has = [(one, item) for one in replicas if isinstance(item := one.log.at(place), Message | Blank)]
        if any(item != has[0][1] for _, item in has):
            break
        messages += isinstance(has[0][1], Message)
        place = has[0][1].end
    else:
        return found
    if place > run.begin:
        return run._replace(end=place, messages=messages), replica
    right = [(one, item) for one, item in has if isinstance(item, Blank) or not examination.refutes(item)]
    for one, item in right:
        if sum(item == other for _, other in right) * 2 > len(right) and item.end <= run.end:
            return Run(place, item.end, int(isinstance(item, Message)), item), one
    return None


def _is_refuted(examination: Examination, run: Run) -> bool:
    return isinstance(run.first, Message) and examination.refutes(run.first)


def _conflict(verdict: Verdict, replica: Replica) -> Ambiguous:
    candidate = verdict.candidates[0]
    shown = ({"how": candidate.how, "source": candidate.describe()}, _shown(replica))
    return Ambiguous(verdict.physical_offset, verdict.size, "the replica has another record", shown)


def _shown(replica: Replica) -> dict[str, Any]:
    return {"how": "replica", "source": replica.name}


def _writes(log: MappedFileQueue, physical_offset: int, content: bytes) -> Iterator[Write]:
    """Yield the writes of the bytes that change, one a run of changed bytes."""
    file = log.find(physical_offset)
    if file is None:
        return
    at = physical_offset - file.file_from_offset
    before = file.read(at, len(content))
    changed = [i for i, (old, new) in enumerate(zip(before, content, strict=True)) if old != new]
    begin = None
    for place, following in zip(changed, [*changed[1:], -1], strict=True):
        begin = place if begin is None else begin
        if following != place + 1:
            yield Write(file.name, at + begin, content[begin : place + 1])
            begin = None
