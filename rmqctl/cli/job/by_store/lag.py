"""`rmqctl job lag`."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.job.by_store.each_store import Failed, examined
from rmqctl.cli.job.spark_options import spark_target_options, stores_argument
from rmqctl.cli.output.render import print_document, print_rows, remark
from rmqctl.cli.shared.options import OUTPUTS, open_store, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.verbs.inspect.lag import max_behind_option
from rmqctl.cli.views.inspect.lag_view import KEYS, Cells, LagReport, Row, group_cells, lag_report
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.logfile.system.remote_storage import root_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqctl.forensics.groups.lag import Bound
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SUMS = ("behind", "retryDepth", "retriesDelayed", "dlqDepth", "popped", "expiredUnread")


@click.command(
    cls=Verb,
    short_help="The lag of consumer groups on many brokers.",
    exit_codes=SCAN_VERB,
    examples="""
        # how far each group is behind on all masters of a cluster
        rmqctl job lag /mnt/brokers/*/store
        # for monitoring: exit with 1 if billing is over 1000 messages behind in a queue of any broker
        rmqctl job lag /mnt/brokers/*/store --group billing --max-behind 1000
        # the queues with the most messages to consume
        rmqctl job lag /mnt/brokers/*/store -o jsonl | jq -s 'sort_by(-(.behind // 0)) | .[:10][]'
    """,
)
@stores_argument
@click.option("--group", help="Show only this consumer group.")
@max_behind_option
@spark_target_options
@output_option(*OUTPUTS)
@progress_option
def command(stores: tuple[Path, ...], group: str | None, max_behind: Bound | None, output: str) -> int:
    """Show how far each consumer group is behind on many brokers.

    Give one store for each broker: the master's store or a slave's store. STORE is a URL such as s3://bucket/store, or
    a path under which every executor has access to the store. Each task of Spark examines a whole store, as `rmqctl
    lag` does.

    The first table has a row for each group, with the sums of all stores, the oldest message of all stores, and the
    largest age. The second table has a row for each group of each store. CSV and JSON Lines have a row for
    each queue. -o json prints the sums, and all data of `rmqctl lag -o json` for each store.

    If one store cannot be examined, the reason is printed on stderr, and the job continues with the other stores. The
    exit code is the largest exit code of all stores. Executors need the libraries of rmqctl (numba, numpy, ...). rmqctl
    sends its own code to the executors. This job needs the extra `spark`.
    """

    def work_on(store: ReadOnlyStore) -> Callable[[ReadOnlyStore], LagReport]:
        return partial(report_of, shown=root_text(store.path.root), group=group, bound=max_behind)

    done = list(examined(dict.fromkeys(stores), open_store, "lag", work_on))
    reports = [report for _, report in done if isinstance(report, LagReport)]
    if len(reports) == len(done) and not any(report.knows_group for report in reports):
        raise BadRequest(f"no store knows the group {group!r}", hint="`rmqctl job lag STORE...` lists the groups")
    _print(list(starmap(_document, done)), output)
    for report in reports:
        for line in report.remarks:
            remark(f"{report.document['store']}: {line}")
    return max(int(report.exit_code) for _, report in done)


def _document(path: Path, report: LagReport | Failed) -> Row:
    """Return the JSON object of a store."""
    if isinstance(report, Failed):
        return {"store": root_text(path)} | report.to_json()
    return report.document | {"exitCode": int(report.exit_code), "notes": report.remarks}


def _print(documents: list[Row], output: str) -> None:
    totals = _rows(documents, "groupTotals")
    sums = _sums(totals)
    if output == "json":
        stores = [document["store"] for document in documents]
        print_document("job.lag", {"stores": stores, "groupTotals": sums, "reports": documents})
    elif output == "table":
        _print_tables(sums, totals)
    else:
        print_rows("job.lag", "groups", _rows(documents, "groups"), output, ("store", *KEYS), {}, head={})


def _rows(documents: list[Row], key: str) -> list[Row]:
    """Return the rows that `key` has in all documents, each with its store."""
    return [{"store": document["store"]} | row for document in documents for row in document.get(key, ())]


def _print_tables(sums: list[Row], totals: list[Row]) -> None:
    if not sums:
        return
    cells = group_cells()
    of_all: Cells = {"GROUP": cells["GROUP"], "STORES": itemgetter("storeCount"), **cells}
    print_rows("job.lag", "groupTotals", sums, "table", (), of_all, head={})
    print()
    order = {row["group"]: number for number, row in enumerate(sums)}
    totals = sorted(totals, key=lambda row: order[row["group"]])
    print_rows("job.lag", "groupTotals", totals, "table", (), {"STORE": itemgetter("store"), **cells}, head={})


def _sums(totals: Iterable[Row]) -> list[Row]:
    """Return a row for each group, with the sums of the rows in `totals`.

    The row of a group has the oldest message and the largest age of all stores.
    """
    from rmqctl.store.read.consumers.consumer_groups import is_broker_group

    of_group: dict[str, list[Row]] = {}
    for row in totals:
        of_group.setdefault(row["group"], []).append(row)
    return [_sum(group, of_group[group]) for group in sorted(of_group, key=lambda name: (is_broker_group(name), name))]


def _sum(group: str, rows: list[Row]) -> Row:
    with_messages = [row for row in rows if row["oldestStoreTimestamp"] is not None]
    oldest = min(with_messages, key=itemgetter("oldestStoreTimestamp"), default=rows[0])
    ages = [row["oldestAgeMs"] for row in with_messages if row["oldestAgeMs"] is not None]
    return {
        "group": group,
        "storeCount": len(rows),
        "behindAtLeast": any(row["behindAtLeast"] for row in rows),
        "oldestStoreTimestamp": oldest["oldestStoreTimestamp"],
        "oldestStoreTime": oldest["oldestStoreTime"],
        "oldestAgeMs": max(ages, default=None),
    } | {name: None if any(row[name] is None for row in rows) else sum(row[name] for row in rows) for name in SUMS}


def report_of(store: ReadOnlyStore, shown: str, group: str | None, bound: Bound | None) -> LagReport:
    """Return the report on a store.

    If the store does not know `group`, the report has no rows and no remarks. If a part of the store could not be read,
    the store may know the group.
    """
    from rmqctl.forensics.groups.lag import Lag

    lag = Lag(store, group)
    report = lag_report(store, lag, shown, bound)
    if group is None or lag.groups.is_known(group) or report.exit_code is ExitCode.PARTIAL:
        return report
    return report._replace(remarks=[], knows_group=False)
