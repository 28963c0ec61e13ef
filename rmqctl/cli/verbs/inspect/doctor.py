"""`rmqctl doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.options import (
    note_unfinished_change,
    open_store,
    output_option,
    profile_option,
    progress_option,
    store_argument,
    threads_option,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.doctor_view import print_page, report_json
from rmqctl.cli.views.repair_view import check_complete
from rmqctl.cli.views.scan_progress import scan_progress
from rmqctl.errors import ExitCode, LayoutNotSupported, RmqctlError
from rmqctl.text import quoted

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # what is wrong with a store, and what to type next
        rmqctl doctor /data/rocketmq/store
        # the next command, for a script
        rmqctl doctor store -o json | jq -r '.causes[0].next'
        # what a cause means
        rmqctl explain log-file-gone
    """,
)
@store_argument
@profile_option("Say what a start of a broker of this version would do.")
@output_option("table", "json")
@threads_option
@progress_option
def command(
    store: Path,
    broker_conf: Path | None,
    follow_links: bool,
    profile: str | None,
    output: str,
    threads: int,
    progress_mode: str,
) -> int:
    """Say why a store is not healthy, and what to do next, on one page.

    doctor looks for causes: fifty findings of `verify` that follow from one lost file are one cause. For each cause it
    says what happened, what this means for producers and consumers, what a start of the broker would do now, the next
    command, and how sure it is. The cause that matters most comes first. After a repair, run doctor again.

    doctor runs `verify` and simulates a start of the broker in one pass of the log. If something is wrong, it also
    plans what `recover` would do. It compares config/ with the queues. It changes nothing.

    Prints one line if the store is healthy. Exits with 1 if not, with 4 if some input could not be read. A store whose
    broker died is not healthy, even if it is whole: the next start of its broker runs the abnormal recovery.
    """
    from rmqctl.operations.doctor.diagnosis import diagnose
    from rmqctl.operations.doctor.examination import Examiner
    from rmqctl.store.read.version_guess import guess_profile

    opened = _open(store, broker_conf, follow_links)
    known = _profile(profile) or guess_profile(opened)
    examiner = Examiner(opened, known, threads, _blocked(opened))
    warmed_up(examiner.warm_up)
    with scan_progress(opened, progress_mode, "doctor"):
        examination = examiner.run()
    options = f" --profile {profile}" if profile else ""
    causes = diagnose(examination, _target(store, broker_conf, follow_links), options)
    if output == "json":
        print_document("doctor", {"store": str(store)} | report_json(examination, causes, known))
    else:
        print_page(examination, causes)
    note_unfinished_change(opened)
    if examination.report.incomplete:
        return int(ExitCode.PARTIAL)
    return int(ExitCode.FINDINGS if causes else ExitCode.CLEAN)


def _open(store: Path, broker_conf: Path | None, follow_links: bool) -> ReadOnlyStore:
    """Return the store, or its log alone if its queues cannot be read."""
    try:
        return open_store(store, broker_conf, follow_links)
    except LayoutNotSupported:
        return open_store(store, broker_conf, follow_links, log_only=True)


def _profile(name: str | None) -> Profile | None:
    from rmqctl.format.profile import PROFILES

    return PROFILES[name] if name else None


def _blocked(store: ReadOnlyStore) -> str:
    """Return why a repair of the store cannot be planned; empty: it can."""
    try:
        check_complete(store)
    except RmqctlError as error:
        return error.what
    return ""


def _target(store: Path, broker_conf: Path | None, follow_links: bool) -> str:
    """Return the words that name the store on the next command line."""
    words = [quoted(store)]
    if broker_conf is not None:
        words.append(f"--broker-conf {quoted(broker_conf)}")
    if follow_links:
        words.append("--follow-links")
    return " ".join(words)
