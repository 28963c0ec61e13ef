"""`rmqctl diff`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_line_of_text, print_table, progress, remark, to_json
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import (
    LocalPath,
    bodies_of,
    body_options,
    layout_options,
    note_failed_bodies,
    note_unread,
    open_store,
    output_option,
    scan_options,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import outcome
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.forensics.diff.log_diff import Limits, Range
    from rmqctl.forensics.diff.only_in_a import OnlyInA
    from rmqctl.forensics.diff.part_diff import Difference
    from rmqctl.store.read.read_only_store import ReadOnlyStore

_COMPARED = {"commit log", "DLedger log", "queues", "batch queues", "index", "configuration"}
OFFSETS_NAMED, PARTS_SHOWN = 4, 20
_MOST = 0.5  # of the bytes that both logs have: from there on, they are different logs


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # does the slave have what its master has?
        rmqctl diff master/store slave/store
        # what would be lost if the slave became the master
        rmqctl diff master/store slave/store --messages > lost.jsonl
        # put it back
        rmqctl append slave/store --from lost.jsonl
        # what a repair changed
        rmqctl diff before/store after/store
    """,
)
@click.argument("a", metavar="A", type=LocalPath())
@click.argument("b", metavar="B", type=LocalPath())
@click.option(
    "--messages",
    is_flag=True,
    help="Print the messages that A has and B lacks, in place of the differences: as lines of `dump -o jsonl`, with "
    "stored bodies (base64) unless --body says otherwise.",
)
@body_options
@layout_options
@output_option("table", "json", "jsonl")
@scan_options
def command(a: Path, b: Path, messages: bool, body: str | None, charset: str | None, output: str, threads: int) -> int:
    """Compare two stores of one log: a master and its slave, a store and its copy.

    The logs are compared byte by byte. Each range that differs says which side is worse there: `damaged-in-b`,
    `missing-in-a`, `placeholder-in-b`; `different` is where both have whole records, as after a failover to a slave
    that was behind. `expired-in-b` is what only A still has at its beginning, `behind-in-b` what only A has at its end.
    Queues are compared unit by unit, index files and config/ by their entries; stderr names what is not compared.

    --messages finds the messages of these ranges in B by topic and UNIQ_KEY, wherever B has them. To put them into B,
    first let `recover` repair B, as `append` needs a log that ends with a whole record; then take its messages again.
    `rmqctl job diff` compares the logs of many or huge stores record by record, on Spark.
    """
    from rmqctl.forensics.diff.log_diff import UNREADABLE, Limits, limits_of, log_differences, warm_up_diff
    from rmqctl.forensics.diff.only_in_a import OnlyInA
    from rmqctl.forensics.diff.part_diff import part_differences

    if a.resolve() == b.resolve():
        raise click.UsageError("A and B are the same store")
    if messages and output == "json":
        raise click.UsageError("--messages prints JSON Lines: leave out -o json")
    stores = [open_store(path, log_only=messages) for path in (a, b)]
    warmed_up(partial(warm_up_diff, *(store.commit_log for store in stores)))
    limits = tuple(limits_of(store.commit_log, threads) for store in stores)
    first, last = max(limit.begin for limit in limits), min(limit.end for limit in limits)
    with progress(kept("progress_mode"), 2 * max(last - first, 0), "diff") as advance:
        for store in stores:
            store.commit_log.on_progress = advance
        ranges = list(log_differences(stores[0].commit_log, stores[1].commit_log, (limits[0], limits[1])))
    if messages:
        bodies = bodies_of(body or (None if charset else "base64"), charset)
        only, count = OnlyInA(stores[0], stores[1], ranges, bodies), 0
        for row in only.rows():
            print(to_json(row))
            count += 1
        note_failed_bodies(bodies)
        _remark_only(only, count)
        incomplete, has_found = bool(only.damaged), bool(count)
    else:
        other = list(part_differences(stores[0], stores[1], Limits(first, last)))
        without = _not_compared(stores)
        _print((a, b), (limits[0], limits[1]), ranges, other, without, output)
        incomplete, has_found = any(one.is_unread for one in other), bool(ranges or other)
    for path, store in zip((a, b), stores, strict=True):
        note_unread(store, f"{path}: ")
        incomplete = incomplete or store.partly_read
    return outcome(incomplete=incomplete or any(UNREADABLE in one.kind for one in ranges), findings=has_found)


def _remark_only(only: OnlyInA, count: int) -> None:
    remark(f"{counted(count, 'message')} only in A")
    if only.erased:
        first = ", ".join(map(str, only.erased[:OFFSETS_NAMED])) + ("..." if only.erased[OFFSETS_NAMED:] else "")
        are = "is" if len(only.erased) == 1 else "are"
        remark(f"{len(only.erased)} of them {are} erased in B (`rmqctl erase`), at {first}: do not send them again")
    if only.placeholders:
        remark(f"{counted(only.placeholders, 'placeholder')} of `rmqctl recover` in A left out")
    if only.damaged:
        remark(f"A is damaged in {counted(only.damaged, 'place')} of these: what it had there is not known")


def _not_compared(stores: Sequence[ReadOnlyStore]) -> list[str]:
    from rmqctl.forensics.survey.not_read import parts
    from rmqctl.store.config.store_path import Layout

    found = [(store, part) for store in stores for part in parts(store) if not part.is_missing]
    return sorted(
        {
            part.path
            for store, part in found
            if part.name not in _COMPARED
            or (part.database and part.name == "index")
            or (part.database and part.name == "queues" and store.path.layout is Layout.COMBINED)
        }
    )


def _print(
    paths: tuple[Path, Path],
    limits: tuple[Limits, Limits],
    ranges: Sequence[Range],
    other: Sequence[Difference],
    not_compared: list[str],
    output: str,
) -> None:
    rows = [{"begin": one.begin, "end": one.end, "kind": one.kind} for one in ranges]
    parts = [{"path": one.path, "what": one.what} for one in other]
    behind = sum((one.end - one.begin) * (1 if one.kind[-1] == "b" else -1) for one in ranges if one.is_behind)
    first = next((one.begin for one in ranges if one.is_divergence), None)
    if output == "json":
        sides = {
            side: {"store": str(path), "minPhyOffset": limit.begin, "maxPhyOffset": limit.end}
            for side, path, limit in zip("ab", paths, limits, strict=True)
        }
        answer: dict[str, Any] = {"same": not (rows or parts), "firstDivergence": first, "behind": behind}
        print_document(
            "diff",
            {"stores": [str(path) for path in paths]}
            | sides
            | answer
            | {"ranges": rows, "other": parts}
            | {"notCompared": not_compared},
        )
    elif output == "jsonl":
        for row in (*rows, *parts):
            print(to_json(row))
    else:
        print_line_of_text(_verdict(limits, ranges, len(parts), first, behind))
        if rows:
            print()
            print_table(
                ["BEGIN", "END", "BYTES", "KIND"], [[begin, end, end - begin, kind] for begin, end, kind in ranges]
            )
        if parts:
            print()
            print_table(["PATH", "DIFFERENCE"], [[one.path, one.what] for one in other[:PARTS_SHOWN]])
            if other[PARTS_SHOWN:]:
                print_line_of_text(f"and {len(other) - PARTS_SHOWN} more: -o json has all of them")
    if not_compared:
        remark(f"not compared: {', '.join(not_compared)}")


def _verdict(limits: tuple[Limits, Limits], ranges: Sequence[Range], parts: int, first: int | None, behind: int) -> str:
    from rmqctl.forensics.diff.log_diff import DIFFERENT

    begins, ends = max(limit.begin for limit in limits), min(limit.end for limit in limits)
    places = sum(one.is_divergence for one in ranges)
    told = []
    if ends <= begins and all(limit.begin < limit.end for limit in limits):
        told.append("the logs have no offset in common")
    elif sum(one.end - one.begin for one in ranges if one.kind == DIFFERENT) > _MOST * max(ends - begins, 0):
        told.append("no copies of one log")
    if places:
        told.append(f"the logs differ in {counted(places, 'range')}, the first at {first}")
    if behind:
        told.append(f"{'B' if behind > 0 else 'A'} is {counted(abs(behind), 'byte')} behind")
    if limits[0].begin != limits[1].begin:
        later = "A" if limits[0].begin > limits[1].begin else "B"
        told.append(f"{later} begins {counted(abs(limits[0].begin - limits[1].begin), 'byte')} later")
    if parts:
        told.append(f"{counted(parts, 'difference')} beside the log")
    if not told:
        return (
            f"the same: log {limits[0].begin} to {limits[0].end}, queues, index files, checkpoint, abort, configuration"
        )
    return "; ".join(told)
