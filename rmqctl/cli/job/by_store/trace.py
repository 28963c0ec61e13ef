"""`rmqctl job trace`."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqctl.cli.job.by_store.each_store import Failed, examined
from rmqctl.cli.job.spark_options import spark_target_options, stores_argument
from rmqctl.cli.output.render import print_document, print_line_of_text, remark
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import bodies_of, open_store, output_option, progress_option
from rmqctl.cli.shared.trace_question import TraceOptions, question_of, trace_options
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.verbs.inspect.trace import exit_code_of
from rmqctl.cli.views.inspect.trace_view import print_trace
from rmqctl.logfile.system.remote_storage import root_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.forensics.trace.trace import Question
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]


class Traced(NamedTuple):
    """The trace in one store: the exit code, the JSON document, and notes for stderr."""

    exit_code: int
    document: Row
    notes: list[str]


@click.command(
    cls=Verb,
    short_help="The life of a message on many brokers.",
    exit_codes=SCAN_VERB,
    examples="""
        # which brokers have the message of order 4711, and who has consumed the message
        rmqctl job trace /mnt/brokers/*/store --key order-4711
        # a message by the id that its producer got, if the indexes cannot be trusted
        rmqctl job trace /mnt/brokers/*/store --unique-key 0A010200000000000000000000000018 --scan
        # the stores that have the message
        rmqctl job trace /mnt/brokers/*/store --key order-4711 -o json | jq '.reports[] | select(.found) | .store'
    """,
)
@stores_argument
@trace_options
@spark_target_options
@output_option("table", "json")
@progress_option
@options_in(asked=TraceOptions)
def command(
    stores: tuple[Path, ...],
    limit: int,
    scan: bool,
    body: str | None,
    charset: str | None,
    output: str,
    asked: TraceOptions,
) -> int:
    """Show the life of one message in each of many stores.

    STORE is a URL such as s3://bucket/store, or a path under which every executor has access to the store. Each task of
    Spark searches one store, as `rmqctl trace` of this store does: a task searches the index first. The task reads the
    log if the index is missing or incomplete, or if nothing is found. Therefore, most tasks read a whole log if few
    stores have the message.

    `job trace` prints the life of the message under the name of each store that has the message. For each other store,
    `job trace` prints one line. For each store, -o json prints all data of `rmqctl trace -o json`. `job trace` does not
    follow a message from one store to another. To follow it, give the stores that have the message to `rmqctl trace`.

    If one store cannot be searched, the reason is printed on stderr, and the job continues with the other stores. The
    exit code is the largest exit code of all stores. The exit code of a store that does not have the message is 1.
    Executors need the libraries of rmqctl (numba, numpy, ...). rmqctl sends its own code to the executors. This job
    needs the extra `spark`.
    """
    question = question_of(asked)
    work = partial(traced, question=question, by_scan=scan, limit=limit, body=body, charset=charset)

    def work_on(store: ReadOnlyStore) -> Callable[[ReadOnlyStore], Traced]:
        return partial(work, shown=root_text(store.path.root))

    done = list(examined(dict.fromkeys(stores), partial(open_store, log_only=True), "trace", work_on))
    documents = list(starmap(_document, done))
    if output == "json":
        print_document("job.trace", {"stores": [row["store"] for row in documents], "reports": documents})
    else:
        _print(documents)
    for row in documents:
        for note in row.get("notes", ()):
            remark(f"{row['store']}: {note}")
    return max(int(result.exit_code) for _, result in done)


def _document(path: Path, result: Traced | Failed) -> Row:
    """Return the JSON object of a store."""
    if isinstance(result, Failed):
        return {"store": root_text(path)} | result.to_json()
    return result.document | {"exitCode": result.exit_code, "notes": result.notes}


def _print(documents: list[Row]) -> None:
    """Print each life under its store's name, then a line for each other store."""
    searched = [row for row in documents if "error" not in row]
    found = [row for row in searched if row["found"]]
    for number, row in enumerate(found):
        if number > 0:
            print()
        print_line_of_text(f"{row['store']}:")
        print_trace(row)
    if 0 < len(found) < len(searched):
        print()
    for row in searched:
        if not row["found"]:
            print_line_of_text(f"{row['store']}: {row['verdict']}")


def traced(
    store: ReadOnlyStore,
    shown: str,
    question: Question,
    *,
    by_scan: bool,
    limit: int,
    body: str | None,
    charset: str | None,
) -> Traced:
    """Search a store for a message in a task.

    `shown` is the name of the store. At most `limit` messages of a key are traced.
    """
    from rmqctl.forensics.trace.document import document
    from rmqctl.forensics.trace.trace import Trace
    from rmqctl.kernels import filter_scan
    from rmqctl.spark.scan.task_kernels import warm_up_once

    warm_up = partial(warm_up_once, filter_scan)  # a task already has the other kernels
    trace = Trace(
        [store], question, threads=1, warm_up=warm_up, by_scan=by_scan, limit=limit, bodies=bodies_of(body, charset)
    )
    found = document(trace, [shown])
    return Traced(int(exit_code_of(trace)), found, [f"{damage.path}: {damage.detail}" for damage in store.foreign])
