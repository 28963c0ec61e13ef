"""`rmqctl job doctor`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.job.by_store.each_store import Failed, examined
from rmqctl.cli.job.spark_options import spark_target_options, stores_argument
from rmqctl.cli.output.render import print_document, print_rows
from rmqctl.cli.output.tone import Tone, Toned
from rmqctl.cli.shared.options import output_option, profile_option, progress_option, target_words
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.verbs.inspect.doctor import diagnosed, examiner_of, open_for_doctor
from rmqctl.errors import ExitCode
from rmqctl.logfile.system.remote_storage import root_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rmqctl.format.profile import Profile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
RESULTS = {
    int(ExitCode.CLEAN): Toned("healthy", Tone.GOOD),
    int(ExitCode.FINDINGS): Toned("not healthy", Tone.BAD),
    int(ExitCode.PARTIAL): Toned("partly read", Tone.ATTENTION),
}
NOT_EXAMINED = Toned("not examined", Tone.BAD)
COLUMNS: dict[str, Callable[[Row], Any]] = {
    "STORE": lambda row: row["store"],
    "RESULT": lambda row: NOT_EXAMINED if "error" in row else RESULTS[row["exitCode"]],
    "MESSAGES": lambda row: row.get("messages"),
    "CAUSES": lambda row: " ".join(cause["code"] for cause in row.get("causes", ())),
    "NEXT": lambda row: next((cause["next"].split("\n")[0] for cause in row.get("causes", ())), ""),
}


@click.command(
    cls=Verb,
    short_help="The diagnosis of `rmqctl doctor` for many stores.",
    exit_codes=SCAN_VERB,
    examples="""
        # which of a hundred brokers are not healthy, and what to type next
        rmqctl job doctor /mnt/incident/*/store --master spark://spark1:7077
        # all of what `doctor` says of the stores that are not healthy
        rmqctl job doctor /mnt/incident/*/store -o jsonl | jq 'select(.exitCode != 0)'
    """,
)
@stores_argument
@profile_option("Say what a start of a broker of this version would do.")
@spark_target_options
@output_option("table", "json", "jsonl")
@progress_option
def command(stores: tuple[Path, ...], profile: Profile | None, output: str) -> int:
    """Say why stores are not healthy, and what to do next, in a row for each store.

    STORE is a URL such as s3://bucket/store, or a path under which every executor has access to the store. Each task of
    Spark examines a whole store, as `rmqctl doctor` does. For each store, the table shows all causes, the most
    important cause first. The table also shows the next command for the first cause. For each store, -o json and -o
    jsonl print all data of `rmqctl doctor -o json`.

    If one store cannot be examined, the reason is printed on stderr, and the job continues with the other stores. The
    exit code is the largest exit code of all stores. Executors need the libraries of rmqctl (numba, numpy, ...). rmqctl
    sends its own code to the executors. This job needs the extra `spark`.
    """
    targets = {store: target_words(store) for store in stores}

    def work_on(store: ReadOnlyStore) -> Callable[[ReadOnlyStore], Row]:
        return partial(report_of, target=targets[store.path.root], profile=profile)

    codes: list[int] = []
    rows = _rows(examined(stores, open_for_doctor, "doctor", work_on), codes)
    if output == "json":
        reports = list(rows)
        print_document("job.doctor", {"stores": [row["store"] for row in reports], "reports": reports})
    else:
        print_rows("job.doctor", "reports", rows, output, (), COLUMNS, head={}, live=output == "jsonl")
    return max(codes)


def _rows(found: Iterable[tuple[Path, Row | Failed]], codes: list[int]) -> Iterator[Row]:
    """Yield a JSON object for each store, and append its exit code to `codes`."""
    for path, result in found:
        row = result.to_json() if isinstance(result, Failed) else result
        codes.append(row["exitCode"])
        yield {"store": root_text(path)} | row


def report_of(store: ReadOnlyStore, target: str, profile: Profile | None) -> Row:
    """Examine a store, and return the JSON object that describes the store.

    `target` is the store with its options, as words of a command line.
    """
    found = diagnosed(examiner_of(store, profile, 1), target, profile)
    return {"exitCode": int(found.exit_code)} | found.to_json()
