"""`rmqctl job export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.job.export_target import MODES, export_target
from rmqctl.cli.job.job_run import finish, job_run, print_written, scanned, unread
from rmqctl.cli.job.spark_options import FolderOrUrl, spark_options, stores_argument
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import RAW_HELP, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import Unreadable
from rmqctl.logfile.system.remote_storage import root_text
from rmqctl.spark.scan.split import MIB

if TYPE_CHECKING:
    from rmqctl.cli.job.job_run import JobRun, Row
    from rmqctl.spark.scan.coverage import Coverage

FILE_MIB, FILE_MIB_MAX = 128, 4096
ICEBERG = "iceberg"


@dataclass(frozen=True)
class ExportOptions:
    """The options of `job export` alone."""

    mode: str
    file_mib: int
    file_format: str
    body: str
    raw: bool


@click.command(
    cls=Verb,
    short_help="Messages as Parquet, JSON Lines, CSV or Iceberg.",
    exit_codes=SCAN_VERB,
    examples="""
        # all messages as Parquet, by topic and day
        rmqctl job export /mnt/incident/*/store --to /mnt/incident/messages
        # all messages in the form of `rmqctl dump --body base64 -o jsonl`
        rmqctl job export store --to messages --format jsonl
        # one more broker's messages, to a bucket that has those of others
        rmqctl job export store --to s3://incident/messages --mode append
        # all messages to a table of the Iceberg catalog `lake` of the Spark session
        rmqctl job export store --format iceberg --to lake.incident.messages
    """,
)
@stores_argument
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIR",
    type=FolderOrUrl(),
    help="The folder for the exported files: a path, or a URL such as s3://BUCKET/DIR, gs://, abfs:// or hdfs://. With "
    "--format iceberg: CATALOG.DATABASE.TABLE.",
)
@click.option(
    "--mode",
    type=MODES,
    default="error",
    help="What to do if DIR has files, or if the table exists: end with an error, replace what earlier exports have "
    "written, or keep it and add messages.",
)
@click.option(
    "--file-mib",
    type=click.IntRange(1, FILE_MIB_MAX),
    default=FILE_MIB,
    help="The size, in MiB, that a file should have. Smaller files of a topic and day are merged.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(("parquet", "jsonl", "csv", ICEBERG)),
    default="parquet",
)
@click.option(
    "--body",
    type=click.Choice(("binary", "utf8", "none")),
    default="binary",
    help="`binary` writes bodies as stored, as base64 in JSON Lines and CSV. `utf8` writes the text of decompressed "
    "bodies (zlib, lz4, zstd): in Parquet and Iceberg as a further column bodyText, null where that fails. `none` "
    "writes no bodies.",
)
@click.option("--raw", is_flag=True, help=RAW_HELP)
@spark_options
@output_option("table", "json")
@progress_option
@options_in(chosen=ExportOptions)
def command(stores: tuple[Path, ...], target: Path, output: str, chosen: ExportOptions) -> int:
    """Write the messages of the log to files, or to an Iceberg table.

    The files are Parquet, JSON Lines or CSV.

    `export` writes Parquet files to folders topic=T/day=D (days in UTC). Damaged messages are not exported. If a
    character is not allowed in a folder name, `export` writes %XX instead, as Hive does. Programs that read Hive's
    folders decode %XX.

    If DIR is a path, DIR never contains an incomplete export. `export` first writes to a hidden folder beside DIR. When
    the whole log is read, DIR gets the files in one step. If an export is killed, DIR has its earlier files, and the
    next export to the same DIR removes the hidden folder. Every executor must have access to DIR under the same path.

    If DIR is a URL, `export` first writes to a folder `_rmqctl-RUN` in DIR, then moves the files to their places, and
    then writes the file `_MANIFEST` (JSON), which names all files of the export, with their bytes and messages.
    A program that reads only these files sees the earlier export or the new one, never a part. Other programs should
    wait for the file `_SUCCESS`, which is missing while files are moved. A second export to the same URL is refused
    while the first one runs. If an export is killed, the next export to the URL removes what is left, but not before 2
    minutes have passed.

    With --mode overwrite, only files of earlier exports are replaced: `export` refuses a DIR that has other files.
    `export` exits with 1 if the log is damaged.

    With --format iceberg, --to is a table of a catalog of the Spark session. The settings of Spark define the catalog:
    spark.sql.catalog.CATALOG=org.apache.iceberg.spark.SparkCatalog, with its type and warehouse, and
    spark.jars.packages for Iceberg's runtime for this version of Spark. Set them in spark-defaults.conf, or by
    spark-submit. `export` first reads the log and proves that it has read all of it. Then `export` reads the log again,
    writes what the first reading has found, and commits the table in one step. If the log changes in between, or if the
    export is killed, the table stays as it was. A new table is divided by topic and by day of storeTime, and has the
    columns of the Parquet files. --mode append adds to any table that has these columns. --mode overwrite replaces only
    a table that an export has made. The table keeps its earlier snapshots.
    """
    from rmqctl.spark.question.export.export import write
    from rmqctl.spark.question.export.export_format import ExportFormat
    from rmqctl.spark.question.export.part_files import Sink

    if chosen.file_format == ICEBERG:
        if chosen.raw:
            raise click.UsageError("--raw is for --format csv")
        return _to_table(stores, root_text(target), output, chosen)
    file_format = ExportFormat(chosen.file_format, body=chosen.body, raw=chosen.raw)
    place = export_target(target, stores, chosen.mode, file_format.suffix)
    with place as there, job_run("export", stores) as run:
        files, read = write(run.records(()), Sink(there.staging, file_format, chosen.file_mib * MIB))
        _check_read(run, read)
        there.publish(files)
    to = root_text(target.absolute())
    return _finish(run, read, {"to": to, "format": file_format.name, "fileCount": len(files)}, output)


def _to_table(stores: tuple[Path, ...], name: str, output: str, chosen: ExportOptions) -> int:
    """Write the messages to an Iceberg table. Return the exit code."""
    from rmqctl.spark.question.export.earlier_files import Mode
    from rmqctl.spark.question.export.iceberg import Table, check, write

    table = Table(name, Mode(chosen.mode), chosen.body, chosen.file_mib * MIB)
    with job_run("export", stores) as run:
        exists = check(run.spark, table)
        read = run.whole_log()
        _check_read(run, read)
        files = write(run.records(()), table, read, exists=exists)
    return _finish(run, read, {"to": name, "format": ICEBERG, "fileCount": files}, output)


def _check_read(run: JobRun, read: Coverage) -> None:
    """Check that the whole log was read. Raises Unreadable."""
    if run.is_partial or read.counts.unreadable:
        raise Unreadable(f"nothing was exported: a part of the log could not be read: {unread([read.counts])}")


def _finish(run: JobRun, read: Coverage, written: Row, output: str) -> int:
    """Print what was written and read. Return the exit code."""
    document = written | scanned(read)
    print_written(run, document, document, output)
    return finish(run, [read])
