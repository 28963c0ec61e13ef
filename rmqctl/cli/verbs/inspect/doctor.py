"""`rmqctl doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.options import (
    note_unfinished_change,
    open_store,
    output_option,
    profile_option,
    profile_words,
    scan_options,
    scan_progress,
    store_argument,
    target_words,
)
from rmqctl.cli.shared.own_files import check_places
from rmqctl.cli.shared.run_as import copy_of_evidence
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.change.repair_view import check_complete
from rmqctl.cli.views.inspect.doctor_view import GAUGES, Diagnosed, print_page, set_gauges
from rmqctl.cli.views.metrics_file import MetricsFile, with_metrics
from rmqctl.errors import LayoutNotSupported, RmqctlError
from rmqctl.logfile.system.remote_storage import root_text

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.doctor.examination import Examiner
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # what is wrong with a store, and what to type next
        rmqctl doctor /data/rocketmq/store
        # the next command, for a script
        rmqctl doctor store -o json | jq -r '.causes[0].next'
        # from cron: metrics for node_exporter's textfile collector
        rmqctl doctor store --watch /var/lib/node_exporter/rmqctl-doctor.prom
        # what a cause means
        rmqctl explain log-file-gone
    """,
)
@store_argument
@click.option(
    "--watch",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the verdict to this file, as metrics for Prometheus. Run `doctor` from cron to update the file.",
)
@profile_option("Say what a start of a broker of this version would do.")
@output_option("table", "json")
@scan_options
def command(store: Path, profile: Profile | None, output: str, threads: int, watch: Path | None) -> int:
    """Say why a store is not healthy, and what to do next, on one page.

    `doctor` looks for causes. If one lost file leads to fifty findings of `verify`, `doctor` reports one cause. For
    each cause, `doctor` says what happened, what it means for producers and consumers, which command to type next, and
    how sure `doctor` is of the cause.

    The first line has the worst cause, what the store lost or does not serve, and whether a broker runs on it; the
    second line has the command to type next. Then comes what a start of the broker would do now. After a repair, run
    `doctor` again.

    In one pass of the log, `doctor` runs `verify` and simulates a start of the broker. `doctor` also compares config/
    with the queues. If something is wrong, `doctor` reads the log again, to plan what `recover` would do. `doctor`
    changes nothing in the store.

    `doctor` prints one line if the store is healthy. Without --broker-conf or --broker-version, `doctor` says what it
    assumed; of a healthy store also that no bit flipped where no checksum shows it. `doctor` exits with 1 if the store
    is not healthy, and with 4 if some input could not be read. An undamaged store is not healthy if the broker died:
    the next start of the broker then runs the abnormal recovery.
    """
    check_places([store], {"--watch": watch})
    gauges = MetricsFile("doctor", store, GAUGES)

    def run() -> int:
        opened = open_for_doctor(store)
        check_places(opened.path.commitlogs, {"--watch": watch})
        examiner = examiner_of(opened, profile, threads)
        warmed_up(examiner.warm_up)
        target = target_words(store)
        with scan_progress(opened, "doctor"):
            found = diagnosed(examiner, target, profile)
        set_gauges(gauges, found)
        if output == "json":
            print_document("doctor", {"store": root_text(opened.path.root)} | found.to_json())
        else:
            print_page(found, opened.path.root, target)
        note_unfinished_change(opened)
        if found.diagnosis.causes and (hint := copy_of_evidence(opened.path.root)):
            remark(f"note: it is evidence, of `rmqctl acquire`: {hint}")
        return int(found.exit_code)

    return with_metrics(gauges, watch, run)


def examiner_of(store: ReadOnlyStore, profile: Profile | None, threads: int) -> Examiner:
    """Return the examiner of a store; if `profile` is None, guess the profile."""
    from rmqctl.operations.doctor.examination import Examiner
    from rmqctl.store.read.version_guess import guess_profile

    return Examiner(store, profile or guess_profile(store), threads, _blocked)


def diagnosed(examiner: Examiner, target: str, profile: Profile | None) -> Diagnosed:
    """Examine a store, and find the causes.

    `target` is the store with its options, as words of a command line.
    """
    from rmqctl.operations.doctor.diagnosis import diagnose
    from rmqctl.operations.doctor.situation import Situation, situation_of
    from rmqctl.operations.doctor.surroundings import assumptions

    examination = examiner.run()
    diagnosis = diagnose(examination, target, profile_words(profile))
    situation = situation_of(examiner.store, examiner.profile) if examiner.reads_queues else Situation()
    assumed = assumptions(examiner.store, examiner.profile, profile and profile.label, is_healthy=not diagnosis.causes)
    examiner.store.close()
    return Diagnosed(examination, diagnosis, situation, examiner.profile, assumed)


def open_for_doctor(store: Path) -> ReadOnlyStore:
    """Open the store, or only its log if rmqctl does not support its queues."""
    try:
        return open_store(store)
    except LayoutNotSupported:
        return open_store(store, log_only=True)


def _blocked(store: ReadOnlyStore) -> str:
    """Return why no repair can be planned, or "" if a repair can be planned."""
    try:
        check_complete(store, refills=True)
    except RmqctlError as error:
        from rmqctl.store.config.store_path import Layout

        is_of_group = store.path.layout is Layout.DLEDGER  # its hint is about queues and index alone
        return f"{error.what}; {error.hint}" if error.hint and not is_of_group else error.what
    return ""
