"""`rmqctl verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document, print_rows, print_table, print_toned, remark
from rmqctl.cli.output.tone import Tone, Toned
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.options import (
    ignore_receipts_option,
    note_unfinished_change,
    open_store,
    output_option,
    progress_option,
    store_argument,
    threads_option,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.scan_progress import scan_progress
from rmqctl.errors import ExitCode
from rmqctl.logfile.system.remote_storage import root_text
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # everything: log, queues, index, checkpoint, configuration
        rmqctl verify /data/rocketmq/store
        # the log alone: structure, checksums, offsets
        rmqctl verify store --level 1
        # how many findings of each kind
        rmqctl verify store -o jsonl | jq -r .code | sort | uniq -c
        # what a finding means
        rmqctl explain bad-body-crc
    """,
)
@store_argument
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=3,
    show_default=True,
    help="1: the log. 2: also the queues. 3: also index, checkpoint and configuration.",
)
@ignore_receipts_option
@output_option("table", "json", "jsonl", "csv")
@threads_option
@progress_option
def command(
    store: Path,
    broker_conf: Path | None,
    follow_links: bool,
    level: int,
    ignore_receipts: bool,
    output: str,
    threads: int,
    progress_mode: str,
) -> int:
    """Check whether a store is whole.

    Level 1 reads the whole log: structure, checksums, continuity of offsets, the blank record at the end of each file,
    and zeros after the end of the log. Level 2 also compares every message with its queue unit, and every unit with its
    message. Level 3 also checks the index, the checkpoint, abort, and config/*.json. Damage does not stop verify: it
    continues at the next whole record.

    -o jsonl and -o csv print one finding a line; -o json prints one document. Exits with 1 if there are findings, with
    4 if some input could not be read.
    """
    from rmqctl.forensics.verify import Verification

    opened = open_store(store, broker_conf, follow_links, log_only=level == 1)
    verification = Verification(opened, level, threads, receipts=not ignore_receipts)
    report = verification.report
    warmed_up(verification.warm_up)
    try:
        with scan_progress(opened, progress_mode, "verify"):
            verification.run()
    except KeyboardInterrupt:
        _remark_summary(report)
        raise
    note_unfinished_change(opened)
    return print_report(opened, report, output)


def print_report(store: ReadOnlyStore, report: VerifyReport, output: str) -> int:
    """Print the findings of verify, and return its exit code."""
    if output == "json":
        print_document("verify", {"store": root_text(store.path.root)} | report.to_json())
    elif output == "table":
        _print_findings(report)
    else:
        from rmqctl.forensics.finding import FINDING_KEYS

        print_rows(
            "verify", "findings", (finding.to_json() for finding in report.findings), output, FINDING_KEYS, {}, head={}
        )
    for note in report.notes:
        remark(f"note: {note}")
    _remark_summary(report)
    if report.incomplete:
        return int(ExitCode.PARTIAL)
    return int(ExitCode.FINDINGS if report.findings else ExitCode.CLEAN)


def _remark_summary(report: VerifyReport) -> None:
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
        remark(
            f"of the messages {placeholders}, which `recover --keep-going` wrote in place of others (`rmqctl explain "
            "placeholder`)"
        )
    _remark_restart(report)
    if report.findings:
        remark("`rmqctl explain CODE` says what a finding means, and what to do next")


def _remark_restart(report: VerifyReport) -> None:
    """Report what a restart now makes of the damage, and what a later one may."""
    now = report.restart_now
    later = _words_of_drop(report.broker_stops_at, report.behind_damage_messages, report.behind_damage_bytes)
    if now is None:
        if later:
            remark(f"if a broker's start scans offset {report.broker_stops_at}, it {later}")
    elif now.refused is not None:
        remark(f"a restart now fails, because the broker does not load the store: {now.refused}")
    elif now.ends_at is not None:
        words = _words_of_drop(now.ends_at, now.records, now.bytes)
        remark(f"a restart now {words}; `rmqctl recover STORE --dry-run` shows what a repair would keep")
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
    if not report.findings:
        print_toned(f"level {report.level}: no findings", Tone.GOOD)
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
        for finding in report.findings
    ]
    print_table(["CODE", "FILE", "PHYSICALOFFSET", "AT BYTE", "COUNT", "DETAIL"], rows)
