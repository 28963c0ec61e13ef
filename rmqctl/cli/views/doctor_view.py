"""What `doctor` prints: one page, or one document."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from rmqctl.cli.output.printable import printable
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.forensics.finding import Finding
    from rmqctl.format.profile import Profile
    from rmqctl.operations.doctor.diagnosis import Cause
    from rmqctl.operations.doctor.examination import Examination

WIDTH, INDENT = 100, "                "
EVIDENCE_SHOWN = 6


def report_json(examination: Examination, causes: Sequence[Cause], profile: Profile) -> dict[str, Any]:
    """Return the keys of doctor's document."""
    report = examination.report
    return {
        "healthy": not causes,
        "profile": profile.name,
        "messages": report.summary.messages,
        "minPhyOffset": report.min_phy_offset,
        "maxPhyOffset": report.summary.end,
        "causes": [cause.to_json() for cause in causes],
        "notes": report.notes,
        "seconds": round(report.seconds, 6),
    }


def print_page(examination: Examination, causes: Sequence[Cause]) -> None:
    """Print one line for a healthy store, otherwise a paragraph for each cause."""
    report = examination.report
    what = f"{counted(report.summary.messages, 'message')}, the log ends at {report.summary.end}"
    if not causes:
        print(f"healthy: {what}")
        return
    print(f"not healthy: {counted(len(causes), 'cause')}; {what}")
    for number, cause in enumerate(causes, 1):
        print()
        _print_cause(number, cause)


def _print_cause(number: int, cause: Cause) -> None:
    print(printable(f"{number}. {cause.code} ({cause.confidence})"))
    _field("what", cause.summary)
    for finding in cause.evidence[:EVIDENCE_SHOWN]:
        _field("evidence", _in_words(finding))
    _field("means", cause.means)
    _field("a start now", cause.restart["detail"])
    if cause.issue:
        _field("known bug", cause.issue)
    _field("next", cause.next_command, wrap=False)
    _field("then", cause.then)


def _field(name: str, text: str, *, wrap: bool = True) -> None:
    head = f"   {name:<{len(INDENT) - 3}}"
    if not wrap:
        print(printable(head + text))
        return
    for line in textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=head,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        print(line)


def _in_words(finding: Finding) -> str:
    count = f" x {finding.count}" if finding.count > 1 else ""
    return f"{finding.code}{count}, {finding.path}: {finding.detail}"
