"""The meaning of each cause, and the next command for the cause.

All functions are pure: their results depend only on an examination.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.forensics.doctor.attribution import attribute
from rmqctl.forensics.doctor.causes import CAUSES, RANK
from rmqctl.forensics.doctor.group import Group
from rmqctl.forensics.doctor.next_start import OF_QUEUES, describe_start, is_blocking, start_to_json
from rmqctl.operations.doctor.prescription import Prescriber
from rmqctl.store.config.config_file import TOPICS_CONFIG
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.forensics.finding import Finding
    from rmqctl.operations.doctor.examination import Examination

SUBJECTS_NAMED, FINDINGS_SHOWN = 4, 12
NOT_SERVED = {
    "timer-files-missing": "never delivered",
    "queue-unreadable": "that no consumer can read",
    "compaction-missing": "missing in compaction/",
    "compaction-record": "damaged in compaction/",
}


@dataclass(frozen=True)
class Cause:
    """A cause as the operator sees it, in text and in JSON."""

    code: str
    summary: str
    evidence: tuple[Finding, ...]  # the first findings; of consequences, one for each finding code
    # messages of the log without a unit in the affected queues; None: the cause is about other things
    missed: int | None
    means: str
    restart: dict[str, Any]
    next_command: str
    then: str  # the store after `next_command`
    confidence: str
    issue: str

    def to_json(self) -> dict[str, Any]:
        """Return the cause for a JSON document."""
        return {
            "code": self.code,
            "summary": self.summary,
            "evidence": [finding.to_json() for finding in self.evidence],
            "missedMessages": self.missed,
            "means": self.means,
            "restart": self.restart,
            "next": one_line(self.next_command),
            "then": self.then,
            "confidence": self.confidence,
            "brokerIssue": self.issue or None,
        }


class Diagnosis(NamedTuple):
    """The causes, the most important one first."""

    causes: list[Cause]
    cost: str = ""  # messages that are lost or not served; "" without a cause
    start: str = ""  # the next start of a broker; "" without a cause


def diagnose(examination: Examination, target: str, options: str = "") -> Diagnosis:
    """Return the causes of an examination's findings.

    `target` is the path of the store with its options, quoted for a shell. `options` are those for `recover`. A cause
    that makes the next start fail comes before all others but those whose cure other cures need.
    """
    groups = attribute(examination.findings, examination.facts)
    restart = examination.restart
    blocking = [group for group in groups if restart is not None and is_blocking(restart, group)]
    is_stopped = examination.broker_pid is None
    if restart is not None and restart.problem and not groups and is_stopped:
        groups = [Group("start-refused")]
    elif restart is not None and restart.lost.records and (examination.rejects_good or not groups):
        groups.append(Group("start-loses"))
    if groups and examination.broker_pid is not None:
        groups.append(Group("broker-runs"))
    groups.sort(key=lambda group: (*_order(group, is_blocking=group in blocking), group.physical_offset))
    if not groups:
        return Diagnosis([])
    prescriber = Prescriber(examination, target, options)
    causes = [_cause(group, examination, prescriber) for group in groups]
    return Diagnosis(causes, _cost(causes, examination), describe_start(restart, groups, examination.facts))


def _cost(causes: Sequence[Cause], examination: Examination) -> str:
    # also the messages that a start will lose
    restart, repairs = examination.restart, examination.repairs
    if restart is not None and any(cause.code == "start-loses" for cause in causes):  # nothing is lost yet
        return f"the next start loses {counted(restart.lost.records, 'message')}"
    plans = [plan.repair for plan in (repairs.plain, repairs.keep_going) if plan is not None]
    plan = min(plans, key=lambda plan: plan.lost.records, default=None)
    lost = sum(finding.count for finding in examination.findings if finding.code == "log-start-missing")
    lost += plan.lost.records if plan is not None else 0
    damaged, missed = examination.report.summary.damages, sum(cause.missed or 0 for cause in causes)
    words = [f"{counted(lost, 'message')} lost"] if lost else []
    words += [f"{counted(damaged, 'damaged place')} in the log"] if damaged and not lost else []
    words += [f"{counted(missed, 'message')} in no queue"] if missed else []
    for code, what in NOT_SERVED.items():
        count = sum(finding.count for finding in examination.findings if finding.code == code)
        words += [f"{counted(count, 'message')} {what}"] if count else []
    if restart is not None and restart.refused is not None:
        words += ["the next start fails"]
    elif restart is not None and restart.hangs is not None:
        words += ["the next start never ends"]
    elif restart is not None:
        gone = {(queue.topic, queue.queue_id): queue.lost for queue in plan.queues} if plan is not None else {}
        more = sum(max(one.lost - gone.get((one.topic, one.queue_id), 0), 0) for one in restart.queues)
        more = min(more, restart.lost.records)
        words += [f"the next start loses {more}{' more' if lost else ''}"] if more else []
    if any(cause.code == "compaction-unloaded" for cause in causes):
        words += ["consumers get nothing of a compacted queue"]
    return ", ".join(words or (["no message lost"] if plan is not None else []))


def one_line(commands: str) -> str:
    """Return commands, one a line, as one line for a shell.

    An `mv` needs the success of the `mv` before it, and all need the end of the broker; other commands do not depend on
    each other.
    """
    return commands.replace("\n", " && " if commands.startswith(("mv ", "kill ")) else "; ")


def process_in_words(pid: int) -> str:
    """Return the holder of a lock as text; elsewhere, it has no PID here."""
    return f"process {pid}" if pid > 0 else "in another container, or on another host"


def _order(group: Group, *, is_blocking: bool) -> tuple[bool, bool, int]:
    # first comes what other cures need, then what prevents a start
    of_topics = any(PurePosixPath(subject).name == TOPICS_CONFIG for subject in group.subjects)
    rank = min(RANK[group.code], RANK["topics-lost"]) if of_topics else RANK[group.code]
    return rank > RANK["topics-lost"], not is_blocking, rank


def _cause(group: Group, examination: Examination, prescriber: Prescriber) -> Cause:
    kind = CAUSES[group.code]
    command, then = prescriber.of(group)
    restart = examination.restart
    failure = (restart.problem or "") if restart is not None else ""
    if group.code == "broker-runs":
        failure = process_in_words(examination.broker_pid or 0)
    if group.code == "queue-database-behind":
        failure = f" ({counted(sum(finding.count for finding in group.findings), 'unit')})"
    if group.code in ("queue-unread", "group-went-back", "timer-gone", "timer-stalled", "timer-behind"):
        failure = f" ({counted(sum(finding.count for finding in group.findings), 'message')})"
    missed = sum(examination.facts.missed.get(key, 0) for key in group.queues) if group.code in OF_QUEUES else None
    return Cause(
        code=group.code,
        summary=kind.summary.format(subjects=_subjects(group), places=_places(group), detail=failure)
        + _missed_in_words(missed),
        evidence=(*group.findings[:FINDINGS_SHOWN], *_in_short(group.consequences)),
        missed=missed,
        means=kind.means,
        restart=start_to_json(restart) | {"detail": describe_start(restart, [group], examination.facts)},
        next_command=command,
        then=then,
        confidence=kind.confidence,
        issue=kind.issue,
    )


def _missed_in_words(missed: int | None) -> str:
    return f"; {counted(missed, 'message')} of the log missing in the queues" if missed else ""


def _subjects(group: Group) -> str:
    named = ", ".join(group.subjects[:SUBJECTS_NAMED])
    more = len(group.subjects) - SUBJECTS_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _places(group: Group) -> str:
    count = sum(finding.count for finding in group.findings)
    offset = group.findings[0].physical_offset if group.findings else None
    places = [counted(count, "place")] if count > 1 else []
    if offset is not None:
        places.append(f"{'the first at ' if places else ''}physical offset {offset}")
    return f" ({', '.join(places)})" if places else ""


def _in_short(findings: Sequence[Finding]) -> list[Finding]:
    """Merge the findings of each code into one finding with the total count."""
    from dataclasses import replace

    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    return [replace(found[0], count=sum(one.count for one in found)) for found in by_code.values()]
