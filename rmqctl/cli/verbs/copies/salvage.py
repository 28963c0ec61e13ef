"""`rmqctl salvage`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_fields, print_line_of_text, print_table_of, progress, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept, options_in
from rmqctl.cli.shared.options import LocalPath, is_below, output_option, profile_option, scan_options
from rmqctl.cli.shared.sizes import SIZE
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.errors import BadRequest, ExitCode
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqctl.forensics.salvage.survey import Survey
    from rmqctl.format.profile import Profile
    from rmqctl.operations.salvage.new_store import Model

ROWS_SHOWN = 20
_WORDS = {
    "bodyDamaged": "with a damaged body or checksum",
    "headerOnly": "of which only the head is there",
    "jointNotProven": "whose parts may be of two records",
}


@dataclass(frozen=True)
class SalvageOptions:
    """The options of `rmqctl salvage`."""

    holes: str
    generation: int
    commitlog_file_size: int | None
    profile: Profile | None
    placeholders_limit: int
    dry_run: bool
    threads: int
    output: str


@click.command(
    cls=Verb,
    exit_codes=(*STORE_VERB, ExitCode.FINDINGS),
    examples="""
        # log files under any name, whatever is left of them
        rmqctl salvage lost+found --to new
        # what is in a disk image, without writing anything
        rmqctl salvage disk.img --to new --dry-run
        # a store and an old backup together, without placeholders
        rmqctl salvage store backup --to new --holes compact
    """,
)
@click.argument("sources", metavar="SOURCE...", type=LocalPath(), nargs=-1, required=True)
@click.option("--to", "new", metavar="NEW", type=LocalPath(), required=True, help="The new store. It must not exist.")
@click.option(
    "--holes",
    type=click.Choice(("placeholder", "compact")),
    default="placeholder",
    help="`placeholder` fills holes of the log with records that no consumer receives, and each message keeps its "
    "physical offset; `compact` moves the records together.",
)
@click.option(
    "--generation",
    type=click.IntRange(0),
    default=0,
    help="If SOURCE has several logs: the number of the one to bring back. 0 has most bytes.",
)
@click.option(
    "--commitlog-file-size",
    type=SIZE,
    help="The size of the log files.  [default: as the log shows, otherwise 1 GiB]",
)
@click.option(
    "--placeholders-limit",
    type=SIZE,
    default="4GiB",
    help="Write nothing if the holes have more than this many bytes.",
)
@profile_option("Build queues and index as brokers of this version do.")
@click.option("--dry-run", is_flag=True, help="Only show what would come back, and write nothing.")
@click.option("--yes", is_flag=True, hidden=True, expose_value=False)  # salvage asks nothing: it changes no store
@output_option("table", "json")
@scan_options
@options_in(asked=SalvageOptions)
def command(sources: tuple[Path, ...], new: Path, asked: SalvageOptions) -> int:
    """Bring a log back from anything that has pieces of it, into a new store.

    SOURCE is a store, a log file under any name, a folder of such files, a disk image, a core dump, or a file of
    shuffled blocks. Records are found by their own bytes, and each says which physical offset it had. SOURCE is never
    written, links are not followed, and holes of sparse files are not read.

    A record whose blocks lie apart is put together if its checksums prove it: one or two missing blocks are found among
    all blocks that hold no head of a record. Where the parts meet outside the body, BODYCRC proves nothing; then
    `__CRC32#` or the time in UNIQ_KEY must. A record inside the body of another is no record of the log.

    If SOURCE has several logs, of another broker or from before the store was emptied, the one with most bytes comes
    back, and the others are listed. They are never mixed. --generation chooses another one. The log of a DLedger group
    comes back as an ordinary one.

    Each record has a grade: `whole` (only these come back), `bodyDamaged`, `headerOnly`, or `jointNotProven`. NEW gets
    log, queues, index, checkpoint and configuration, so a broker starts on it. Messages keep their queue offsets: in
    the place of each missing one, consumers get a placeholder (`rmqctl explain placeholder`). Topics, groups, consumer
    offsets and file sizes are those of the first SOURCE that is a store; topics and groups that the log names are
    added.

    The exit code is 0 if all of the log is whole, 1 if there are holes or lower grades, and 4 if no whole record was
    found.
    """
    from rmqctl.forensics.salvage.coverage import warm_up
    from rmqctl.forensics.salvage.sources import sources_of
    from rmqctl.forensics.salvage.survey import memory_of, survey
    from rmqctl.operations.salvage.new_store import Model

    _check_new(new, sources)
    files = sources_of(sources)
    size = sum(source.size for source in files)
    warmed_up(partial(warm_up, size))
    needs = f"{memory_of(files) >> 20} MiB of memory, and 120 MiB more for each 100,000 pieces of logs"
    remark(f"{counted(len(files), 'file')}; needs at most {needs}")
    with progress(kept("progress_mode"), size, "salvage") as advance:
        found = survey(files, asked.generation, advance, asked.threads)
    written: dict[str, Any] = {"written": False}
    if found.entries:
        remark(
            "this log is a DLedger group's, which may not have agreed on its last messages; "
            "NEW gets an ordinary log: its messages move together, as with --holes compact"
        )
    if found.runs:
        model = Model(sources)
        written = _write(found, model, new, asked)
        if not any("Offset" in name for name in model.config):
            remark("no SOURCE has the offsets of consumer groups: in NEW, they begin as new groups do")
    for source in files:
        source.close()
    document = {"store": str(new), **found.to_json(), **written}
    if asked.output == "json":
        print_document("salvage", document)
    else:
        _print(document)
    if not found.runs:
        return int(ExitCode.PARTIAL)
    is_all = len(found.generations) == 1 and not found.holes and found.grades.total() == found.grades["whole"]
    return int(ExitCode.CLEAN if is_all else ExitCode.FINDINGS)


def _check_new(new: Path, sources: Sequence[Path]) -> None:
    if new.exists() or new.is_symlink():
        raise BadRequest("already exists", path=str(new), hint="choose a new place: salvage overwrites nothing")
    if any(is_below(new, source) for source in sources):
        raise BadRequest("lies in a SOURCE, which is never written", path=str(new), hint="choose another place")


def _write(found: Survey, model: Model, new: Path, asked: SalvageOptions) -> dict[str, Any]:
    from rmqctl.operations.salvage.new_log import file_size_of
    from rmqctl.operations.salvage.new_store import NewStore

    compact = asked.holes == "compact" or found.entries > 0
    size = file_size_of(found, asked.commitlog_file_size, compact=compact)
    if not compact:
        found.begin_at(found.runs[0].begin // size * size)
    if asked.dry_run:
        return {"written": False, "fileSize": size}
    store = NewStore(new, model, size, asked.profile, asked.threads)
    log = store.write(found, compact=compact, limit=asked.placeholders_limit)
    told = {"logFiles": log.files, "placeholders": log.placeholders, "unplaced": log.dropped}
    return {"written": True, "fileSize": size, **told}


def _print(document: Mapping[str, Any]) -> None:
    grades, holes = document["grades"], document["holes"]
    if not document["ranges"]:
        print("no record of a commit log found")
        return
    lost = sum(hole["end"] - hole["begin"] for hole in holes)
    lacking = sum(part["end"] - part["begin"] for queue in document["queues"] for part in queue["lacks"])
    missing = f"{counted(lacking, 'message')} in the queues: consumers get placeholders"
    state = "are back" if document["written"] else "can be had back"
    where = f" in {document['store']}" if document["written"] else ""
    told = f"; {counted(lost, 'byte')} of the log missing in {counted(len(holes), 'hole')}" if holes else "; no hole"
    others = sum(row["messages"] for row in document["generations"]) - document["messages"]
    if len(document["generations"]) > 1:
        told += f"; {counted(others, 'message')} of other logs left out (--generation)"
    print_line_of_text(f"{counted(document['messages'], 'message')} {state}{where}{told}")
    print()
    print_fields(
        [
            ("found", f"{document['ranges'][0]['begin']} to {document['ranges'][-1]['end']} (physical offsets)"),
            *((f"{counted(grades[grade], 'record')}", words) for grade, words in _WORDS.items() if grades[grade]),
            *_parts(document),
            *([("missing", missing)] if lacking else []),
        ]
    )
    _table(["begin", "end"], holes, "holes")
    queues = [{**row, "lacks": sum(part["end"] - part["begin"] for part in row["lacks"])} for row in document["queues"]]
    _table(["topic", "queueId", "minOffset", "maxOffset", "messages", "lacks"], queues, "queues")
    if len(document["generations"]) > 1:
        keys = ["number", "messages", "bytes", "storeHosts", "firstStoreTime", "lastStoreTime"]
        rows = [{**row, "storeHosts": " ".join(row["storeHosts"])} for row in document["generations"]]
        _table(keys, rows, "logs (--generation)")
    used = [source for source in document["sources"] if source["bytes"] or source["unreadableBytes"]]
    _table(["path", "bytes", "blockSize", "unreadableBytes"], used, "sources")


def _parts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = [("joined", "put together from blocks"), ("ambiguousRecords", "have several explanations")]
    found = [(name, f"{counted(document[name], 'record')} {words}") for name, words in parts if document[name]]
    if document["nested"]:
        found.append(("nested", f"{counted(document['nested'], 'record')} inside bodies left out"))
    return found


def _table(keys: Sequence[str], rows: Sequence[Mapping[str, Any]], what: str) -> None:
    if not rows:
        return
    print()
    print_table_of(keys, [{**row, "unreadableBytes": row.get("unreadableBytes") or None} for row in rows[:ROWS_SHOWN]])
    if len(rows) > ROWS_SHOWN:
        remark(f"{len(rows) - ROWS_SHOWN} more {what}: -o json has all")
