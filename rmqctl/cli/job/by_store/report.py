"""`rmqctl job report`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.job.by_store.each_store import Failed, examined
from rmqctl.cli.job.spark_options import spark_target_options, stores_argument
from rmqctl.cli.output.printable import printable
from rmqctl.cli.output.render import print_document, print_line_of_text
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import LocalPath, output_option, profile_option, progress_option, target_words
from rmqctl.cli.shared.own_files import check_places
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.cli.verbs.inspect.doctor import examiner_of, open_for_doctor
from rmqctl.cli.verbs.inspect.report import add_forecast, check_jinja2, gathering_of
from rmqctl.errors import ExitCode
from rmqctl.logfile.system.remote_storage import root_text
from rmqctl.spark.source.source_stores import broker_of
from rmqctl.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.profile import Profile
    from rmqctl.report.section import Section
    from rmqctl.store.read.read_only_store import ReadOnlyStore

INDEX = "index.html"
_ODD = re.compile(r"[^A-Za-z0-9._-]")
_NAME_MAX = 60


@click.command(
    cls=Verb,
    short_help="The pages of `rmqctl report` for many stores.",
    exit_codes=STORE_VERB,
    examples="""
        # a page for each broker of a cluster, and one over all
        rmqctl job report /mnt/incident/*/store --to report
        # with the forecast of each disk
        rmqctl job report /mnt/brokers/*/store --broker-conf broker.conf --to report
    """,
)
@stores_argument
@click.option("--to", required=True, type=LocalPath(), metavar="FOLDER", help="Write the pages to this folder.")
@profile_option("Say what a start of a broker of this version would do.")
@spark_target_options
@output_option("table", "json")
@progress_option
def command(stores: tuple[Path, ...], to: Path, profile: Profile | None, output: str) -> int:
    """Write a page with pictures for each store, and one over all.

    STORE is a URL such as s3://bucket/store, or a path under which every executor has access to the store. Each task of
    Spark examines a whole store, as `rmqctl report` does.

    FOLDER/index.html has the verdict of each store with a link to its page, such as 1-broker-a.html, and the topics and
    groups of all stores. FOLDER is outside the stores; old pages of the same names are replaced.

    If one store cannot be examined, the reason is printed on stderr and in index.html, and the job continues with the
    other stores. The exit code is the largest of `rmqctl report` for each store. Executors need the libraries of
    rmqctl (numba, numpy, ...). rmqctl sends its own code to the executors. This job needs the extras `spark` and
    `report`.
    """
    from rmqctl.logfile.system.writable_storage import WritableStorage
    from rmqctl.report.page import Broker, Overview, page

    check_jinja2()
    place = to / INDEX if to.is_dir() else to
    check_places(stores, {"--to": place})
    if to.is_file():
        raise click.BadParameter(f"{to} is a file, not a folder", param_hint="--to")
    targets = {store: target_words(store) for store in stores}
    forecasts = kept("broker_conf") is not None

    def work_on(store: ReadOnlyStore) -> Callable[[ReadOnlyStore], Section]:
        check_places(store.path.commitlogs, {"--to": place})
        return partial(section_of, target=targets[store.path.root], profile=profile, forecasts=forecasts)

    storage, overview = WritableStorage(to), Overview()
    reports: list[dict[str, Any]] = []
    codes: list[int] = []
    for path, result in examined(dict.fromkeys(stores), open_for_doctor, "report", work_on):
        row: dict[str, Any] = {"store": root_text(path)}
        if isinstance(result, Failed):
            overview.brokers.append(Broker(row["store"], f"Not examined: {result.error}", ""))
            codes.append(result.exit_code)
            row |= result.to_json()
        else:
            name = f"{len(reports) + 1}-{_ODD.sub('_', broker_of(row['store']))[:_NAME_MAX]}.html"
            storage.replace_file(to / name, page([result], None, None, printable))
            overview.add(result, name)
            codes.append(int(ExitCode.PARTIAL if result.incomplete else ExitCode.CLEAN))
            row |= {"exitCode": codes[-1], "healthy": not result.diagnosis.causes, "page": name}
        reports.append(row)
    storage.replace_file(to / INDEX, page([], overview, None, printable))
    if output == "json":
        names = [row["store"] for row in reports]
        print_document("job.report", {"stores": names, "destination": str(to), "reports": reports})
    else:
        print_line_of_text(f"{quoted(to / INDEX)}: {overview.verdict}")
    return max(codes)


def section_of(store: ReadOnlyStore, target: str, profile: Profile | None, *, forecasts: bool) -> Section:
    """Examine a store in a task, and return what its page says.

    `target` is the store with its options, as words of a command line.
    """
    examiner = examiner_of(store, profile, 1)
    section = gathering_of(examiner, target, profile).run(1)
    if forecasts:
        add_forecast(section, examiner.store)
    return section
