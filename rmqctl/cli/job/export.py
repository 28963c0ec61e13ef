"""`rmqctl job export`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.job.job_run import JobOptions, finish, job_run, scanned
from rmqctl.cli.job.spark_options import spark_options, stores_argument
from rmqctl.cli.output.render import print_document, print_fields, remark
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import RAW_HELP, LocalPath, output_option, progress_option
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import BadRequest, Unreadable


@click.command(
    cls=Verb,
    short_help="Messages as Parquet, JSON Lines or CSV.",
    exit_codes=SCAN_VERB,
    examples="""
        # all messages as Parquet, by topic and day
        rmqctl job export /mnt/incident/*/store --to /mnt/incident/messages
        # all messages in the form of `rmqctl dump --body base64 -o jsonl`
        rmqctl job export store --to messages --format jsonl
    """,
)
@stores_argument
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIR",
    type=LocalPath(),
    help="The folder for the exported files, which must be new or empty.",
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
@options_in(asked=JobOptions)
def command(
    stores: tuple[Path, ...], target: Path, file_format: str, body: str, raw: bool, output: str, asked: JobOptions
) -> int:
    """Write the messages of the log to files: Parquet, JSON Lines, or CSV.

    `export` writes Parquet files to folders topic=T/day=D (days in UTC). Damaged messages are not exported. `export`
    first writes to a hidden folder beside DIR. When the whole log is read, `export` renames the hidden folder to DIR.
    DIR never contains an incomplete export. If an export is killed, the next export to the same DIR removes the hidden
    folder. Every executor must have access to DIR under the same path. If a character is not allowed in a folder name,
    `export` writes %XX instead, as Hive does. Programs that read Hive's folders decode %XX. `export` exits with 1 if
    the log is damaged.
    """
    from rmqctl.spark.question.export import COLUMNS, PARQUET_COLUMNS, new_folder, remove_leftovers, write
    from rmqctl.spark.question.log_records import ask

    needed = (*(PARQUET_COLUMNS if file_format == "parquet" else COLUMNS), *(("body",) if body == "binary" else ()))
    _check_outside(target, stores)
    left = remove_leftovers(target)
    for folder in left.removed:
        remark(f"{folder}: removed, a killed export had left it")
    for folder in left.unknown:
        remark(f"{folder}: an export that was killed may have left it; remove it yourself if nothing uses it")
    with new_folder(target) as folder, job_run("export", stores, asked) as run:
        _, read = ask([run.records(needed)], lambda records: write(records, folder, file_format, raw=raw))
        if run.is_partial or read[0].counts.unreadable:
            raise Unreadable(
                "a part of the log could not be read: nothing was exported", hint="`rmqctl verify` says which"
            )
    document = {"stores": run.names, "to": str(target.absolute()), "format": file_format} | scanned(read[0])
    if output == "json":
        print_document("job.export", document)
    else:
        print_fields((document | {"stores": ", ".join(run.names)}).items())
    return finish(run, read)


def _check_outside(target: Path, stores: tuple[Path, ...]) -> None:
    """Check that the export does not write into a store. Raises BadRequest."""
    for store in stores:
        if target.resolve().is_relative_to(store.resolve()):
            raise BadRequest(
                "is inside the store",
                path=str(target),
                hint="choose a folder outside the store: rmqctl never writes into a store that it inspects",
            )
