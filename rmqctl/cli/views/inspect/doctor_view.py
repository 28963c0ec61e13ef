"""The output of `rmqctl doctor`, as one page of text or as one JSON document."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.readable import readable, wrapped
from rmqctl.cli.output.render import is_terminal, print_line_of_text, print_next, print_toned, text_width
from rmqctl.cli.output.tone import Tone
from rmqctl.errors import outcome
from rmqctl.forensics.doctor.causes import CAUSES
from rmqctl.forensics.doctor.next_start import start_to_json, starts_in_words
from rmqctl.forensics.survey.not_read import in_words
from rmqctl.forensics.verify import LEVEL_ALL
from rmqctl.logfile.system.remote_storage import is_remote
from rmqctl.operations.doctor.diagnosis import one_line, process_in_words
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.cli.views.metrics_file import MetricsFile
    from rmqctl.errors import ExitCode
    from rmqctl.forensics.finding import Finding
    from rmqctl.format.profile import Profile
    from rmqctl.operations.doctor.diagnosis import Cause, Diagnosis
    from rmqctl.operations.doctor.examination import Examination
    from rmqctl.operations.doctor.situation import Situation

WIDTH, INDENT = 100, "                "
EVIDENCE_SHOWN, GROUPS_NAMED, COMMANDS_SHOWN = 6, 5, 20
GAUGES = {
    "healthy": "Whether the store is healthy: 1 or 0.",
    "causes": "How many causes of a code doctor names; see `rmqctl explain CODE`.",
    "findings": "What verify and the audit of the configuration found, all places counted.",
    "messages": "Messages of the commit log.",
    "log_max_offset_bytes": "The physical offset at which the commit log ends.",
    "restart_fails": "Whether a start of the broker now fails, or never ends: 1 or 0.",
    "restart_lost_messages": "Messages that a start of the broker now loses.",
    "behind_messages": "Messages that a consumer group has not consumed yet.",
    "expired_files": "Files that a broker would delete if an hour of deleteWhen began now.",
    "waiting_messages": "Messages in these files that are still needed.",
}


class Diagnosed(NamedTuple):
    """The diagnosis of a store; `profile` is the profile of the simulated start.

    `assumed` says in words what nobody said.
    """

    examination: Examination
    diagnosis: Diagnosis
    situation: Situation
    profile: Profile
    assumed: list[str]

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of `rmqctl doctor`."""
        report = self.examination.report
        return outcome(incomplete=report.incomplete or report.level < LEVEL_ALL, findings=bool(self.diagnosis.causes))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document, without the key `store`."""
        report = self.examination.report
        return {
            "healthy": not self.diagnosis.causes,
            "profile": self.profile.name,
            "brokerVersion": self.profile.version,
            "messages": report.summary.messages,
            "minPhyOffset": report.min_phy_offset,
            "maxPhyOffset": report.summary.end,
            "causes": [cause.to_json() for cause in self.diagnosis.causes],
            "assumed": self.assumed,
            "byVersion": [
                {"versions": list(versions)} | start_to_json(restart)
                for versions, restart in self.examination.by_version
            ],
            "notLookedAt": [one.path for one in report.not_read],
            "notes": report.notes,
            "seconds": round(report.seconds, 6),
        } | self.situation.to_json()


def print_page(found: Diagnosed, root: Path, target: str) -> None:
    """Print one line for a healthy store.

    Of another store: the worst cause with what it costs, the next command, what a start does, and a paragraph for each
    cause. `root` is the path of the store, and `target` the store with its options, as words of a command line.
    """
    examination, diagnosis, situation, _, _ = found
    assumed = [f"assumed: {', '.join(found.assumed)}"] if found.assumed else []
    causes = diagnosis.causes
    report = examination.report
    log = f"the log ends at {report.summary.end}{_end_after(examination)}"
    placeholders = f", {report.placeholders} of them placeholders" if report.placeholders else ""
    messages = f"{counted(report.summary.messages, 'message')}{placeholders}"
    what = "; ".join(filter(None, (f"{messages}, {log}", in_words(report.not_read))))
    if not causes:
        whole = "nothing wrong in what was looked at" if report.not_read else "healthy"
        print_toned(f"{whole}: {'; '.join((what, *assumed))}", Tone.ATTENTION if report.not_read else Tone.GOOD)
        return
    broker = _broker(examination.broker_pid, root)
    print_toned(f"not healthy: {'; '.join(filter(None, (causes[0].code, diagnosis.cost, broker)))}", Tone.BAD)
    following = one_line(_first_commands(causes[0], target))
    if not is_terminal(sys.stdout):  # where it is the last line
        print_line_of_text(f"next: {following}")
    print()
    _field("store", f"{counted(len(causes), 'cause')}; {what}")
    _field("a start now", diagnosis.start)
    if examination.by_version:
        _field("by version", starts_in_words(examination.by_version))
    cures: dict[tuple[str, str], int] = {}
    for number, cause in enumerate(causes, 1):
        print()
        _print_cause(number, cause, target, cures.setdefault((cause.next_command, cause.then), number))
    print()
    for line in (*_situation_in_words(situation, target), *assumed):
        print_line_of_text(line)
    print_next(following)


def _broker(pid: int | None, root: Path) -> str:
    """Say whether a broker has the store open, or "" if that cannot be known."""
    if pid is not None:
        return f"a broker runs on it ({process_in_words(pid)})"
    return "" if is_remote(root) else "no broker runs on it"


def _end_after(examination: Examination) -> str:
    """Return the end of the log after a broker start as text, or "" if unchanged."""
    restart = examination.restart
    if restart is None or restart.problem:
        return ""
    end = restart.max_phy_offset
    return f" (at {end} after a start)" if end != examination.report.summary.end else ""


def set_gauges(gauges: MetricsFile, found: Diagnosed) -> None:
    """Set the gauges that show the verdict of `rmqctl doctor`."""
    examination, causes, situation = found.examination, found.diagnosis.causes, found.situation
    restart = examination.restart
    gauges.set("healthy", int(not causes))
    counts = Counter(cause.code for cause in causes)
    for code in CAUSES:
        gauges.set("causes", counts[code], code=code)
    gauges.set("findings", sum(finding.count for finding in examination.findings))
    gauges.set("messages", examination.report.summary.messages)
    gauges.set("log_max_offset_bytes", examination.report.summary.end)
    if restart is not None:
        gauges.set("restart_fails", int(bool(restart.problem)))
        gauges.set("restart_lost_messages", restart.lost.records)
    for one in situation.groups:
        gauges.set("behind_messages", one.behind, group=one.group)
    if situation.expired is not None:
        gauges.set("expired_files", situation.expired.files)
        gauges.set("waiting_messages", situation.expired.waiting.total)


def _situation_in_words(situation: Situation, target: str) -> Iterator[str]:
    named = ", ".join(
        f"{one.group} {'≥ ' if one.at_least else ''}{one.behind}" for one in situation.groups[:GROUPS_NAMED]
    )
    more = len(situation.groups) - GROUPS_NAMED
    if named:
        yield f"groups behind: {named}" + (f" and {more} more" if more > 0 else "") + f" (`rmqctl lag {target}`)"
    expired = situation.expired
    if expired is not None and expired.files:
        what = f"{counted(expired.files, 'file')}, {counted(expired.bytes, 'byte')}"
        waiting = f", {counted(expired.waiting.total, 'message')} still needed" if expired.waiting.total else ""
        yield f"expired: {what}{waiting} (`rmqctl clean {target} --manual --dry-run`)"


def _first_commands(cause: Cause, target: str) -> str:
    commands = cause.next_command.splitlines()
    shown = COMMANDS_SHOWN + commands[0].startswith("kill ")
    more = len(commands) - shown
    if more <= 0 or any(command.startswith("mv ") for command in commands):  # files half renamed are no store
        return cause.next_command
    return "\n".join([*commands[:shown], f"rmqctl doctor {target} -o json  # {more} more"])


def _print_cause(number: int, cause: Cause, target: str, cured_by: int) -> None:
    print_line_of_text(f"{number}. {cause.code} ({cause.confidence})")
    _field("what", cause.summary)
    for finding in cause.evidence[:EVIDENCE_SHOWN]:
        _field("evidence", _in_words(finding))
    if len(cause.evidence) > EVIDENCE_SHOWN:
        _field("evidence", f"and {len(cause.evidence) - EVIDENCE_SHOWN} more (`-o json` shows all)")
    _field("means", cause.means)
    if cause.issue:
        _field("known bug", cause.issue)
    if cured_by < number:
        _field("next", f"as for {cured_by}")
        return
    for command in _first_commands(cause, target).splitlines():
        _field("next", command, wrap=False)
    _field("then", cause.then)


def _field(name: str, text: str, *, wrap: bool = True) -> None:
    head = f"   {name:<{len(INDENT) - 3}}"
    said = readable(printable(text)) if is_terminal(sys.stdout) else printable(text)
    lines = wrapped(said, text_width(WIDTH) - len(INDENT)).split("\n") if wrap else [printable(text)]
    for line in lines:
        print(head + line)
        head = INDENT


def _in_words(finding: Finding) -> str:
    count = f" x {finding.count}" if finding.count > 1 else ""
    return f"{finding.code}{count}, {finding.path}: {finding.detail}"
