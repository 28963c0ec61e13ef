"""The output of `rmqctl verify` and `rmqctl job verify`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.cli.output.render import (
    is_terminal,
    print_document,
    print_line_of_text,
    print_rows,
    print_table,
    print_toned,
    print_verdict,
    remark,
)
from rmqctl.cli.output.tone import Tone, Toned
from rmqctl.cli.shared.option_class import kept
from rmqctl.errors import ExitCode, outcome
from rmqctl.forensics.survey.not_read import in_words
from rmqctl.logfile.system.remote_storage import root_text
from rmqctl.text import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.finding import Finding
    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore

RESULTS = {
    ExitCode.CLEAN: Toned("whole", Tone.GOOD),
    ExitCode.FINDINGS: Toned("findings", Tone.BAD),
    ExitCode.PARTIAL: Toned("partly read", Tone.ATTENTION),
}
PLACES_NAMED = 4
NOT_VERIFIED = Toned("not verified", Tone.BAD)


class VerifiedStore(NamedTuple):
    """A store with its report, or with the error that ended the verification."""

    store: Path
    exit_code: int
    report: VerifyReport | None
    error: str = ""

    @property
    def name(self) -> str:
        """Return the path or the URL of the store."""
        return root_text(self.store)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the store, an element of the list `reports`."""
        found = self.report.to_json() if self.report is not None else {"error": self.error}
        return {"store": self.name, "exitCode": self.exit_code} | found


def exit_code_of(report: VerifyReport) -> ExitCode:
    """Return the exit code of `rmqctl verify` for a store with this report."""
    return outcome(incomplete=report.incomplete, findings=bool(report.findings))


def print_report(store: ReadOnlyStore, report: VerifyReport, output: str) -> int:
    """Print the findings of the report on one store, and return the exit code."""
    if output == "json":
        print_document("verify", {"store": root_text(store.path.root)} | report.to_json())
    elif output == "table":
        _print_findings(report)
    else:
        from rmqctl.forensics.finding import FINDING_KEYS

        rows = (finding.to_json() for finding in report.findings)
        print_rows("verify", "findings", rows, output, FINDING_KEYS, {}, head={})
    remark_report(report)
    return int(exit_code_of(report))


def print_stores(verified: Iterable[VerifiedStore], output: str) -> int:
    """Print the findings of several stores, one store after the other.

    Return the largest exit code of all stores.
    """
    done: list[VerifiedStore] = []
    if output == "table":
        for one in verified:
            done.append(one)
            _print_store(one)
        _print_summary(done)
    elif output == "json":
        stores = [one.name for one in _remarked(verified, done)]
        print_document("verify", {"stores": stores, "reports": [one.to_json() for one in done]})
    else:
        from rmqctl.forensics.finding import FINDING_KEYS

        rows = (
            {"store": one.name} | finding.to_json()
            for one in _remarked(verified, done)
            for finding in (one.report.findings if one.report is not None else ())
        )
        print_rows("verify", "findings", rows, output, ("store", *FINDING_KEYS), {}, head={}, live=True)
    return max(one.exit_code for one in done)


def _print_store(one: VerifiedStore) -> None:
    if one.report is None:
        return
    print_line_of_text(f"{one.name}:")
    if not is_terminal(sys.stdout):
        remark(f"{one.name}:")
    _print_findings(one.report)
    remark_report(one.report)
    print()


def _print_summary(verified: Sequence[VerifiedStore]) -> None:
    rows = [
        [
            one.name,
            RESULTS[ExitCode(one.exit_code)],
            report.summary.messages,
            len(report.findings),
            one.exit_code,
        ]
        if (report := one.report) is not None
        else [one.name, NOT_VERIFIED, None, None, one.exit_code]
        for one in verified
    ]
    print_table(["STORE", "RESULT", "MESSAGES", "FINDINGS", "EXIT CODE"], rows)


def _remarked(verified: Iterable[VerifiedStore], done: list[VerifiedStore]) -> Iterator[VerifiedStore]:
    """Print the remarks on each store, append the store to `done`, and yield it."""
    for one in verified:
        done.append(one)
        if one.report is not None:
            remark(f"{one.name}:")
            remark_report(one.report)
        yield one


def remark_report(report: VerifyReport) -> None:
    """Print the notes and the summary of a verification on stderr."""
    for note in report.notes:
        remark(f"note: {note}")
    remark_summary(report)


def remark_summary(report: VerifyReport) -> None:
    """Print on stderr how much of the log was read, and what was found."""
    summary = report.summary
    remark(
        f"scanned {counted(summary.bytes_scanned, 'byte')} in {report.seconds:.2f} s: "
        f"{counted(summary.messages, 'message')}, "
        f"{counted(summary.blanks, 'blank')}, {counted(summary.damages, 'damaged place')}; ok up to "
        f"{summary.ok_up_to}; "
        f"stopped at {summary.end}: {summary.stopped}"
    )
    if report.placeholders:
        placeholders = f"{report.placeholders} {'is a placeholder' if report.placeholders == 1 else 'are placeholders'}"
        whence = "which `recover`, `salvage` or `erase` wrote in place of others (`rmqctl explain placeholder`)"
        remark(f"of the messages {placeholders}, {whence}")
    _remark_restart(report)
    if report.not_read and report.findings:
        remark(in_words(report.not_read))
    if report.findings:
        remark("`rmqctl explain CODE` says what a finding means, and what to do next")


def _remark_restart(report: VerifyReport) -> None:
    """Report the losses of a broker's restart now, and of a later restart."""
    now = report.restart_now
    later = _words_of_drop(report.broker_stops_at, report.behind_damage_messages, report.behind_damage_bytes)
    if now is None:
        if later:
            remark(f"if a broker's start scans offset {report.broker_stops_at}, it {later}")
    elif now.refused is not None:
        remark(f"a restart now fails, because the broker does not load the store: {now.refused}")
    elif now.ends_at is not None:
        words = _words_of_drop(now.ends_at, now.records, now.bytes)
        shown = "the queues after that start" if now.of_group else "what a repair would keep"
        remark(f"a restart now {words}; `rmqctl recover STORE --dry-run` shows {shown}")
    elif later:
        remark(
            f"a restart now drops nothing: its scan begins at {now.scans_from}, after the damage; a later start that "
            f"scans offset {report.broker_stops_at} {later}"
        )


def _words_of_drop(end: int | None, messages: int, size: int) -> str:
    if end is None:
        return ""
    return f"ends the log at {end} and drops {counted(messages, 'good message')} ({counted(size, 'byte')}) after it"


def _print_findings(report: VerifyReport) -> None:
    findings, messages = report.findings, counted(report.summary.messages, "message")
    if not findings:
        whole = f"whole: {messages}" if is_terminal(sys.stdout) else ""
        said = filter(None, (whole, f"level {report.level}: no findings", in_words(report.not_read)))
        print_toned("; ".join(said), Tone.GOOD)
        return
    kinds = Counter[str]()
    for finding in findings:
        kinds[finding.code] += finding.count
    first = findings[0]
    where = "" if first.physical_offset is None else f" at {first.physical_offset}"
    what = f"{kinds.total()} findings of {counted(len(kinds), 'kind')}" if kinds.total() > 1 else first.code + where
    print_verdict(f"not whole: {what}; {messages}", Tone.BAD)
    if is_terminal(sys.stdout) and not kept("verbose"):
        rows = [[Toned(code, Tone.BAD), count, _places(code, findings)] for code, count in kinds.items()]
        print_table(["CODE", "COUNT", "WHERE"], rows)
        if len(findings) > len(kinds):
            print_line_of_text("(-v shows each)")
        return
    rows = [
        [
            Toned(finding.code, Tone.BAD),
            finding.path,
            finding.physical_offset,
            finding.file_offset,
            finding.count if finding.count > 1 else None,
            finding.detail,
        ]
        for finding in findings
    ]
    print_table(["CODE", "FILE", "PHYSICALOFFSET", "AT BYTE", "COUNT", "DETAIL"], rows)


def _places(code: str, findings: Sequence[Finding]) -> str:
    """Say where the findings of a code are; of a single one, what it says."""
    of_code = [finding for finding in findings if finding.code == code]
    if len(of_code) == 1:
        at = "" if of_code[0].physical_offset is None else f" at {of_code[0].physical_offset}"
        return f"{of_code[0].path}{at}: {of_code[0].detail}"
    counts = Counter[str]()
    for finding in of_code:
        counts[finding.topic or finding.path] += finding.count
    queues = len({(finding.topic, finding.queue_id) for finding in of_code if finding.topic is not None})
    named = ", ".join(f"{shortened(place)} {count:,}" for place, count in counts.most_common(PLACES_NAMED))
    more = " ..." if len(counts) > PLACES_NAMED else ""
    return f"{counted(queues, 'queue')} ({named}{more})" if queues else f"{named}{more}; first: {of_code[0].detail}"
