"""`rmqctl report`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.render import print_document, print_line_of_text
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import (
    LocalPath,
    note_unfinished_change,
    note_unread,
    output_option,
    profile_option,
    scan_options,
    scan_progress,
    stores_argument,
    target_words,
)
from rmqctl.cli.shared.own_files import check_places
from rmqctl.cli.shared.trace_question import TraceOptions, question_of
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.cli.verbs.inspect.doctor import diagnosed, examiner_of, open_for_doctor
from rmqctl.cli.verbs.inspect.du import forecast_of
from rmqctl.cli.verbs.inspect.trace import traced
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.logfile.system.remote_storage import root_text
from rmqctl.text import install_extra, quoted, size_text

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.doctor.examination import Examiner
    from rmqctl.report.section import Gathering, Section
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=STORE_VERB,
    examples="""
        # one page with pictures, to attach to a mail
        rmqctl report /data/rocketmq/store --to report.html
        # with the forecast of the disk
        rmqctl report store --broker-conf /etc/rocketmq/broker.conf --to report.html
        # the brokers of a cluster, and where the message of order 4711 went
        rmqctl report broker-a/store broker-b/store --trace order-4711 --to report.html
    """,
)
@stores_argument
@click.option("--to", required=True, type=LocalPath(), metavar="FILE.html", help="Write the page to this file.")
@click.option("--trace", "key", metavar="KEY", help="Draw the life of the message with this key, too.")
@profile_option("Say what a start of a broker of this version would do.")
@output_option("table", "json")
@scan_options
def command(
    stores: tuple[Path, ...], to: Path, key: str | None, profile: Profile | None, output: str, threads: int
) -> int:
    """Write one page with pictures of a store, for a person who was not there.

    The page has doctor's verdict and causes, a map of the log with what is used, blank, damaged, missing or a
    placeholder in each file, messages and bytes over time by topic, how long messages took into the log, the groups and
    what they have not read, and what takes the space; with --broker-conf also when the disk is full. Each chart has its
    table. Several stores share a page, which begins with their sums. It is one HTML file that loads nothing and runs no
    script, so it can be mailed and printed; it is light or dark as the reader's screen.

    The page shows the names of topics, groups and hosts, and no bodies. Of more than 30 topics, groups or queues, it
    shows the largest; in a log of more than 200 files, a bar stands for several.

    FILE.html must be outside the stores; an old one is replaced. `report` reads each log twice, and changes nothing in
    a store. It exits with 0 whatever doctor found; for a script, use `doctor`.
    """
    from rmqctl.forensics.trace.document import document
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.report.page import Overview, page, verdict

    check_places(stores, {"--to": to})
    check_jinja2()
    question = None if key is None else question_of(TraceOptions(key, None, None, None, None, None))
    opened = [open_for_doctor(store) for store in stores]
    check_places([log for store in opened for log in store.path.commitlogs], {"--to": to})
    names = [str(store) for store in stores]
    sections = [_section(store, shown, profile, threads) for store, shown in zip(opened, stores, strict=True)]
    trace = None if question is None else document(traced(opened, question, threads), names) | {"key": key}
    overview = Overview()
    for number, section in enumerate(sections, 1):
        overview.add(section, f"#store{number}")
    data = page(sections, overview if len(sections) > 1 else None, trace, printable)
    WritableStorage(to.parent).replace_file(to, data)
    said = verdict(sections[0]) if len(sections) == 1 else overview.verdict
    if output == "json":
        print_document("report", {"store": names[0], "stores": names, "destination": str(to), "bytes": len(data)})
    else:
        print_line_of_text(f"{quoted(to)}, {size_text(len(data))}: {said}")
    for store, path in zip(opened, stores, strict=True):
        note_unread(store, f"{path}: " if len(stores) > 1 else "")
        note_unfinished_change(store)
    return int(ExitCode.PARTIAL if any(section.incomplete for section in sections) else ExitCode.CLEAN)


def _section(store: ReadOnlyStore, path: Path, profile: Profile | None, threads: int) -> Section:
    examiner = examiner_of(store, profile, threads)
    warmed_up(examiner.warm_up)
    with scan_progress(store, "doctor"):
        gathering = gathering_of(examiner, target_words(path), profile)
    warmed_up(gathering.log.warm_up)
    with scan_progress(examiner.store, "report"):
        section = gathering.run(threads)
    if kept("broker_conf") is not None:
        add_forecast(section, examiner.store)
    return section


def check_jinja2() -> None:
    """Raise BadRequest if the extra `report` is not installed."""
    if find_spec("jinja2") is None:
        raise BadRequest("Jinja2 is not installed", hint=install_extra("report"))


def gathering_of(examiner: Examiner, target: str, profile: Profile | None) -> Gathering:
    """Examine a store as `doctor` does, and return what gathers the rest.

    The arguments are those of `diagnosed`.
    """
    from rmqctl.report.section import Gathering

    found = diagnosed(examiner, target, profile)
    expired = found.situation.expired
    return Gathering(
        examiner.store,
        {"store": root_text(examiner.store.path.root)} | found.to_json(),
        found.diagnosis,
        expired=expired.names if expired else (),
        has_placeholders=bool(found.examination.report.placeholders),
    )


def add_forecast(section: Section, store: ReadOnlyStore) -> None:
    """Add to a section when the store's disk is full, by its broker.conf."""
    from rmqctl.forensics.groups.lag import Lag

    section.space["forecast"] = forecast_of(store, section.space["bytesPerDay"], Lag(store, counts_delayed=False))
