"""`rmqctl job export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.job.export_target import MODES, export_target
from rmqctl.cli.job.job_run import finish, job_run, print_written, scanned, unread
from rmqctl.cli.job.spark_options import FolderOrUrl, spark_options, stores_argument
from rmqctl.cli.shared.message_filter import FilterOptions, filter_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import RAW_HELP, charset_option, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import Unreadable
from rmqctl.logfile.system.remote_storage import is_remote, root_text
from rmqctl.spark.scan.split import MIB

if TYPE_CHECKING:
    from rmqctl.cli.job.job_run import JobRun, Row
    from rmqctl.spark.scan.coverage import Coverage

FILE_MIB, FILE_MIB_MAX = 128, 4096
ICEBERG = "iceberg"
FILE_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl"}


@dataclass(frozen=True)
class ExportOptions:
    """The options of `job export` alone."""

    mode: str
    file_mib: int
    file_format: str | None
    body: str
    raw: bool

    def one_file_of(self, target: Path) -> str | None:
        """Return the format of the target, if it is one file, or None."""
        named = FILE_SUFFIXES.get(target.suffix)
        is_file = self.file_format in (None, named) and not is_remote(target) and not target.is_dir()
        return named if is_file else None


@click.command(
    cls=Verb,
    short_help="Messages as Parquet, JSON Lines, CSV or Iceberg.",
    exit_codes=SCAN_VERB,
    examples="""
        # all messages as Parquet, by topic and day
        rmqctl job export /mnt/incident/*/store --to /mnt/incident/messages
        # all messages in the form of `rmqctl dump --body base64 -o jsonl`
        rmqctl job export store --to messages --format jsonl
        # yesterday's messages of a topic, as one file for a spreadsheet
        rmqctl job export store --topic orders --since yesterday --until today --body utf8 --to orders.csv
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
    metavar="DIR|FILE",
    type=FolderOrUrl(),
    help="The folder for the exported files: a path, or a URL such as s3://BUCKET/DIR, gs://, abfs:// or hdfs://. A "
    "path that ends in .csv, .jsonl or .json is one file. With --format iceberg: CATALOG.DATABASE.TABLE.",
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
    help="[default: parquet, or as FILE ends]",
)
@click.option(
    "--body",
    type=click.Choice(("binary", "utf8", "json", "none")),
    default="binary",
    help="`binary` writes bodies as stored, as base64 in JSON Lines and CSV. `utf8` writes the text of decompressed "
    "bodies (zlib, lz4, zstd): in Parquet and Iceberg as a further column bodyText, null where that fails. `json` "
    "writes bodies that are JSON as values (the key bodyJson of JSON Lines), and others as `utf8` does. `none` writes "
    "no bodies.",
)
@charset_option
@filter_options
@click.option("--raw", is_flag=True, help=RAW_HELP)
@spark_options
@output_option("table", "json")
@progress_option
@options_in(chosen=ExportOptions, conditions=FilterOptions)
def command(
    stores: tuple[Path, ...], target: Path, output: str, chosen: ExportOptions, conditions: FilterOptions
) -> int:
    """Write messages of the log to files, or to an Iceberg table.

    The files are Parquet, JSON Lines or CSV. All messages that meet all conditions are written, with the columns of
    `rmqctl dump`, and `broker` and `store`.

    FILE gets all messages, store by store, in the order of the log. It has its name when it is complete, and replaces
    an earlier one only with --mode overwrite.

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
    from rmqctl.spark.question.export.part_files import ONE_FILE, Sink
    from rmqctl.spark.source.bounded_splits import Bounds

    one_file = chosen.one_file_of(target)
    name = chosen.file_format or one_file or "parquet"
    _check_usage(stores, name, chosen, conditions, one_file)
    wanted = conditions.filter()
    if name == ICEBERG:
        return _to_table(stores, root_text(target), output, chosen)
    file_format = ExportFormat(name, body=chosen.body, raw=chosen.raw)
    place = export_target(target, stores, chosen.mode, file_format.suffix, one_file=one_file is not None)
    with place as there, job_run("export", stores, log_only=not conditions.unconsumed) as run:
        wanted = conditions.in_store(wanted, run.stores[0])
        only = run.splits_within(Bounds.of(wanted), "messages of these times and offsets")
        records = run.records(())._replace(only=only)
        if conditions.charset:
            records = records._replace(options={**records.options, "charset": conditions.charset})
        size = ONE_FILE if one_file else chosen.file_mib * MIB
        files, read = write(records, Sink(there.staging, file_format, size), wanted)
        _check_read(run, read)
        there.publish(files)
    written = {"messages": sum(file.messages for file in files), "messagesRead": read.counts.messages}
    to = root_text(target.absolute())
    return _finish(run, read, {"to": to, "format": name, "fileCount": len(files)}, written, output)


def _check_usage(
    stores: tuple[Path, ...], name: str, chosen: ExportOptions, conditions: FilterOptions, one_file: str | None
) -> None:
    if conditions.unconsumed and len(stores) > 1:
        raise click.UsageError("--unconsumed is about one broker: give one STORE")
    if one_file and chosen.mode == "append":
        raise click.UsageError("--mode append adds files to a folder: it cannot add to one file")
    if chosen.body == "json" and name != "jsonl":
        raise click.UsageError("--body json is for JSON Lines; --body utf8 writes the text of bodies")
    if name == ICEBERG and chosen.raw:
        raise click.UsageError("--raw is for --format csv")
    if name == ICEBERG and (conditions.are_given or conditions.charset):
        raise click.UsageError("--format iceberg writes all messages: `job sql` selects some, and writes Parquet")


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
    messages = read.counts.messages
    written = {"messages": messages, "messagesRead": messages}
    return _finish(run, read, {"to": name, "format": ICEBERG, "fileCount": files}, written, output)


def _check_read(run: JobRun, read: Coverage) -> None:
    """Check that the whole log was read. Raises Unreadable."""
    if run.is_partial or read.counts.unreadable:
        raise Unreadable(f"nothing was exported: a part of the log could not be read: {unread([read.counts])}")


def _finish(run: JobRun, read: Coverage, place: Row, written: Row, output: str) -> int:
    """Print what was written and read. Return the exit code."""
    document = place | scanned(read) | written
    print_written(run, document, output)
    return finish(run, [read])
