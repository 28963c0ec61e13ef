"""`rmqctl job export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from rmqctl.cli.job.job_run import JobOptions, finish, job_run, scanned
from rmqctl.cli.job.spark_options import FolderOrUrl, spark_options, stores_argument
from rmqctl.cli.output.render import print_document, print_fields, remark
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import RAW_HELP, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import BadRequest, Unreadable
from rmqctl.logfile.system.remote_storage import place_of, root_text
from rmqctl.spark.scan.split_size import MIB

FILE_MIB, FILE_MIB_MAX = 128, 4096


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
    short_help="Messages as Parquet, JSON Lines or CSV.",
    exit_codes=SCAN_VERB,
    examples="""
        # all messages as Parquet, by topic and day
        rmqctl job export /mnt/incident/*/store --to /mnt/incident/messages
        # all messages in the form of `rmqctl dump --body base64 -o jsonl`
        rmqctl job export store --to messages --format jsonl
        # one more broker's messages, to a bucket that has those of others
        rmqctl job export store --to s3://incident/messages --mode append
    """,
)
@stores_argument
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIR",
    type=FolderOrUrl(),
    help="The folder for the exported files: a path, or a URL such as s3://BUCKET/DIR, gs://, abfs:// or hdfs://.",
)
@click.option(
    "--mode",
    type=click.Choice(("error", "overwrite", "append")),
    default="error",
    show_default=True,
    help="What to do if DIR has files: end with an error, replace the files of earlier exports, or keep them and add "
    "files.",
)
@click.option(
    "--file-mib",
    type=click.IntRange(1, FILE_MIB_MAX),
    default=FILE_MIB,
    show_default=True,
    help="The size, in MiB, that a file should have. Smaller files of a topic and day are merged.",
)
@click.option(
    "--format", "file_format", type=click.Choice(("parquet", "jsonl", "csv")), default="parquet", show_default=True
)
@click.option(
    "--body",
    type=click.Choice(("binary", "none")),
    default="binary",
    show_default=True,
    help="`binary` writes bodies as stored. In JSON Lines and CSV, bodies are base64. `none` writes no bodies.",
)
@click.option("--raw", is_flag=True, help=RAW_HELP)
@spark_options
@output_option("table", "json")
@progress_option
@options_in(asked=JobOptions, chosen=ExportOptions)
def command(stores: tuple[Path, ...], target: Path, output: str, asked: JobOptions, chosen: ExportOptions) -> int:
    """Write the messages of the log to files: Parquet, JSON Lines, or CSV.

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
    """
    from rmqctl.spark.question.export.earlier_files import Mode
    from rmqctl.spark.question.export.export import write
    from rmqctl.spark.question.export.export_format import ExportFormat
    from rmqctl.spark.question.export.part_files import Sink
    from rmqctl.spark.question.export.target import remove_leftovers, target_of

    _check_outside(target, stores)
    file_format = ExportFormat(chosen.file_format, body=chosen.body == "binary", raw=chosen.raw)
    left = remove_leftovers(target)
    for folder in left.removed:
        remark(f"{folder}: removed, a killed export had left it")
    for folder in left.unknown:
        remark(f"{folder}: an export that was killed may have left it; remove it yourself if nothing uses it")
    with target_of(target, Mode(chosen.mode), file_format.suffix) as there, job_run("export", stores, asked) as run:
        found = write(run.records(()), Sink(there.staging, file_format, chosen.file_mib * MIB))
        if run.is_partial or found.scan.counts.unreadable:
            raise Unreadable(
                "a part of the log could not be read: nothing was exported", hint="`rmqctl verify` says which"
            )
        there.publish(found.files)
    document = {
        "stores": run.names,
        "to": root_text(target.absolute()),
        "format": file_format.name,
        "fileCount": len(found.files),
    } | scanned(found.scan)
    if output == "json":
        print_document("job.export", document)
    else:
        print_fields((document | {"stores": ", ".join(run.names)}).items())
    return finish(run, [found.scan])


def _check_outside(target: Path, stores: tuple[Path, ...]) -> None:
    """Check that the export does not write into a store. Raises BadRequest."""
    for store in stores:
        if place_of(target).is_relative_to(place_of(store)):
            raise BadRequest(
                "is inside the store",
                path=root_text(target),
                hint="choose a folder outside the store: rmqctl never writes into a store that it inspects",
            )
