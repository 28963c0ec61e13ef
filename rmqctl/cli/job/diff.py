"""`rmqctl job diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.job.job_run import JobRun, Row, finish, job_run, path_of, print_result, rows_of, scanned
from rmqctl.cli.job.spark_options import FolderOrUrl, spark_options
from rmqctl.cli.output.render import remark
from rmqctl.cli.shared.options import COUNT, layout_options, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.format.timestamp import rfc3339
from rmqctl.text import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rmqctl.spark.scan.coverage import Coverage

KEYS = ("physicalOffset", "difference", "fields", "a", "b")
DEFAULT_LIMIT = 1000
DIFFERENT = ("missing", "extra", "different")
WORDS = {
    "expired-in-a": "A begins later, where B has {}",
    "expired-in-b": "B begins later, where A has {}",
    "behind-in-a": "A ends earlier, where B has {}",
    "behind-in-b": "B ends earlier, where A has {}",
}


def _of_either(key: str) -> Any:
    return lambda row: (row["a"] or row["b"])[key]


COLUMNS = {
    "PHYSICALOFFSET": lambda row: row["physicalOffset"],
    "DIFFERENCE": lambda row: row["difference"],
    "FIELDS": lambda row: " ".join(row["fields"]),
    "TOPIC": _of_either("topic"),
    "QUEUE": _of_either("queueId"),
    "OFFSET": _of_either("queueOffset"),
    "SIZE": _of_either("size"),
    "STORED": _of_either("storeTime"),
}


@click.command(
    cls=Verb,
    short_help="The differences between two copies of one log.",
    exit_codes=SCAN_VERB,
    examples="""
        # check whether the slave has all records of the master
        rmqctl job diff master/store slave/store
        # also compare bodies and properties, and print each difference on its own line
        rmqctl job diff store copy --bodies -o jsonl
    """,
)
@click.argument("a", metavar="A", type=FolderOrUrl())
@click.argument("b", metavar="B", type=FolderOrUrl())
@layout_options
@click.option("--bodies", is_flag=True, help="Also compare bodies (by SHA-256) and properties.")
@click.option(
    "--limit",
    type=COUNT,
    default=DEFAULT_LIMIT,
    help="List at most this many differences, the first ones in the log.",
)
@spark_options
@output_option("table", "json", "jsonl", "csv")
@progress_option
def command(a: Path, b: Path, bodies: bool, limit: int, output: str) -> int:
    """Compare two copies of one log, such as the logs of a master and a slave.

    `diff` shows missing, extra and different records. At each physical offset, `diff` compares size, topic, queue,
    queue offset, store time, body checksum and damage. A log may begin later because its first files expired. A log may
    end earlier because its store is behind. stderr and JSON report records that one log lacks at its beginning or end.
    Records that a log lacks at its beginning or end do not count as differences. `diff` exits with 1 if there are
    differences or damage, or if the logs have no offset in common.
    """
    from rmqctl.spark.question.diff import BODY_COLUMNS, FINGERPRINT, Limits, ask_unequal, with_difference

    def kept(unequal: DataFrame) -> DataFrame:
        found = unequal.persist()
        found.count()  # the action that reads the differing parts of both logs
        return found

    if a.resolve() == b.resolve():
        raise click.UsageError("A and B are the same store")
    with job_run("diff", [a, b]) as run:
        needed = ("physicalOffset", *FINGERPRINT, *(BODY_COLUMNS if bodies else ()))
        left, right = (run.records(needed, store) for store in run.stores)
        found, read = ask_unequal(left, right, kept, bodies=bodies)
        totals, rows = _answers(
            with_difference(found, *(Limits(scan.counts.begin, scan.counts.end) for scan in read)), limit
        )
        found.unpersist()
        sides = {
            side: {"store": path_of(store)} | _side(scan)
            for side, store, scan in zip("ab", run.stores, read, strict=True)
        }
    return _report(run, sides, totals, [_row(row) for row in rows], read, output)


def _answers(found: DataFrame, limit: int) -> tuple[list[Row], list[Row]]:
    """Return the number of differences by kind, and the first `limit` differences."""
    from pyspark.sql import functions as f

    totals = found.groupBy("difference").agg(
        f.count("*").alias("records"),
        f.sum(f.coalesce("a.size", "b.size")).alias("bytes"),
        f.min("physicalOffset").alias("firstPhysicalOffset"),
    )
    real = found.where(f.col("difference").isin(*DIFFERENT))
    return rows_of(totals.orderBy("difference")), rows_of(real.orderBy("physicalOffset").limit(limit))


def _report(
    run: JobRun, sides: dict[str, Row], totals: list[Row], rows: list[Row], read: list[Coverage], output: str
) -> int:
    by_name = {row.pop("difference"): row for row in totals}
    real = [row for name, row in by_name.items() if name not in WORDS]
    first = min((row["firstPhysicalOffset"] for row in real), default=None)
    document = sides | {"totals": by_name, "firstDivergence": first, "differences": rows}
    print_result(run, document, "differences", output, KEYS, COLUMNS)
    for name, words in WORDS.items():
        if name in by_name:
            remark(
                words.format(
                    f"{counted(by_name[name]['records'], 'more record')}, {counted(by_name[name]['bytes'], 'byte')}"
                )
            )
    told = ", ".join(f"{by_name[name]['records']} {name}" for name in sorted(by_name.keys() - WORDS.keys()))
    remark(f"{told}; the first at {first}" if real else "no differences")
    begins, ends = [one.counts.begin for one in read], [one.counts.end for one in read]
    apart = None in begins or None in ends or max(filter(None, begins), default=0) >= min(filter(None, ends), default=0)
    if apart:
        remark("the logs have no offset in common")
    return finish(run, read, found=bool(real) or apart)


def _side(scan: Coverage) -> Row:
    return {"minPhyOffset": scan.counts.begin, "maxPhyOffset": scan.counts.end} | scanned(scan)


def _row(row: Row) -> Row:
    shown = {
        side: row[side] and row[side] | {"storeTime": rfc3339(row[side]["storeTimestamp"] or 0)} for side in ("a", "b")
    }
    return {key: row[key] for key in KEYS} | shown
