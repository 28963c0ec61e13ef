"""`rmqctl checkpoint`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_fields, print_table_of
from rmqctl.cli.shared.change import ChangeOptions, PlannedChange, Words, carry_out, check_may_change, journaled
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import OFFSET, open_store, output_option, store_argument
from rmqctl.cli.shared.times import TIME
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.operations.repair.checkpoint_plan import CheckpointPlan
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NEW = ("newValue", "newTime")
TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@click.command(
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples="""
        # show each field, raw and as a time
        rmqctl checkpoint store show
        # the next start after a crash reads the whole log (5.4.0 and later: the last commitLogRecoverMaxNum files)
        rmqctl checkpoint store set --logics-msg-timestamp 0 --logics-physical-offset 0 --yes
        # show what would change
        rmqctl checkpoint store set --index-msg-timestamp 2026-11-21T09:15:00Z --dry-run
    """,
)
@store_argument
@click.argument("action", type=click.Choice(("show", "set")), default="show")
@click.option(
    "--physic-msg-timestamp",
    type=TIME,
    help="The store time of the last message of the log that was flushed to the disk.",
)
@click.option(
    "--logics-msg-timestamp",
    type=TIME,
    help="The store time of the last message whose queue unit was flushed to the disk.",
)
@click.option(
    "--index-msg-timestamp",
    type=TIME,
    help="The store time of the last message in the index files on the disk. A broker sets indexMsgTimestamp when an "
    "index file is full.",
)
@click.option(
    "--master-flushed-offset",
    type=OFFSET,
    help="5.x only, for a slave: the physical offset at which the master's log ended when the master started.",
)
@click.option(
    "--confirm-phy-offset",
    type=OFFSET,
    help="5.x only: the physical offset where the last valid record of the log begins.",
)
@click.option(
    "--logics-physical-offset",
    type=OFFSET,
    help="5.5.0 and later: the physical offset of the last record whose queue unit was flushed to the disk.",
)
@change_options
@output_option("table", "json")
@options_in(how=ChangeOptions)
def command(store: Path, action: str, how: ChangeOptions, **fields: int | None) -> int:
    """Show the checkpoint, or set its fields.

    After a crash, a broker reads only the last part of the log. The broker begins at the last log file whose first
    message was stored at or before min(physicMsgTimestamp, logicsMsgTimestamp) - 3 s. 5.5.0 and later begin at the last
    file whose first message lies at or before logicsPhysicalOffset; if that is 0, at the last file whose first message
    was stored at or before logicsMsgTimestamp. If the checkpoint is too late, the broker misses messages.

    If physicMsgTimestamp, logicsMsgTimestamp and logicsPhysicalOffset are 0, brokers up to 5.3.4 read the whole log.
    5.4.0 and later read at most the last 10 log files, or as many as commitLogRecoverMaxNum of broker.conf says: raise
    it for that start, or their queues stay without the older messages. After a crash, a broker also deletes index files
    that end after indexMsgTimestamp.

    `show` exits with 1 if the checkpoint is missing or has a wrong length. `set` exits with 0. With --dry-run, `set`
    exits with 1 if it would change something. While a broker has the store open, `show` works, but `set` exits with 11.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    _check_usage(given, is_show=action == "show", changes=how.yes or how.dry_run)
    from rmqctl.operations.repair.checkpoint_plan import plan_checkpoint
    from rmqctl.store.journal.journals import CHECKPOINT_VERB

    opened = open_store(store)
    plan = plan_checkpoint(opened, given)
    if action == "show":
        _print(store, _shown(plan), how.output)
        return int(ExitCode.CLEAN if plan.is_whole else ExitCode.FINDINGS)
    check_may_change(opened)
    changes = plan.changes(Path())
    document = _document(plan) | {"actions": [change.to_json() for change in changes]}
    words = Words(CHECKPOINT_VERB, plan.summary, "Set the checkpoint?", "the checkpoint is set")
    change = PlannedChange(
        opened.path.root,
        opened.path.commitlogs,
        partial(_print, store, document, how.output),
        words.question,
        partial(journaled, opened, words, partial(_build, opened, plan)),
        is_due=bool(changes),
        remarks=_warnings(opened, given) if changes else ["nothing to do: the checkpoint already has these values"],
    )
    return carry_out(change, how)


def _check_usage(given: dict[str, int], *, is_show: bool, changes: bool) -> None:
    """Check that the options fit the action show or set. Raises UsageError."""
    if is_show and (given or changes):
        raise click.UsageError("to change the checkpoint: rmqctl checkpoint STORE set")
    if not is_show and not given:
        raise click.UsageError("no field to set: give at least one, such as --physic-msg-timestamp 0")
    if not all(0 <= value < 2**63 for value in given.values()):
        raise click.UsageError("the checkpoint takes 0 or a time after 1970")


def _warnings(store: ReadOnlyStore, given: dict[str, int]) -> Iterator[str]:
    """Warn if a given time is later than the store time of the log's last message.

    If a time in the checkpoint is too late, a broker's recovery begins too late in the log. Raises OSError.
    """
    from rmqctl.format.checkpoint import CHECKPOINT
    from rmqctl.format.timestamp import rfc3339

    _, last = store.commit_log.end()
    newest = last.store_timestamp if last is not None else 0
    for name, field in zip(TIMES, CHECKPOINT.fields, strict=False):
        if given.get(name, 0) > newest:
            of = f"the log's last message, {rfc3339(newest)}" if newest else "what the log has: no message"
            yield f"warning: {field.name} is later than {of}: after a crash, a broker would scan too few files"


def _build(store: ReadOnlyStore, plan: CheckpointPlan, staging: Path) -> list[Change]:
    from rmqctl.logfile.system.writable_storage import WritableStorage

    return plan.build(WritableStorage.like(store.storage), staging)


def _shown(plan: CheckpointPlan) -> dict[str, Any]:
    """Return the document for `show`; `fields` is empty if `plan.is_new`."""
    document = _document(plan)
    fields = [] if plan.is_new else document["fields"]
    return document | {
        "fields": [{name: value for name, value in field.items() if name not in NEW} for field in fields]
    }


def _print(store: Path, document: dict[str, Any], output: str) -> None:
    if output == "json":
        print_document("checkpoint", {"store": str(store)} | document)
        return
    print_fields([("file", document["state"])])
    is_plan = "actions" in document
    rows = [row for row in document["fields"] if not is_plan or row["value"] != row["newValue"]]
    if rows:
        print()
        print_table_of(("field", "value", "time", *(NEW if is_plan else ())), map(_without_epoch, rows))


def _without_epoch(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out the times of fields that are 0, which is no time."""
    no_times = {time for value, time in (("value", "time"), NEW) if not row.get(value)}
    return {key: None if key in no_times else cell for key, cell in row.items()}


def _document(plan: CheckpointPlan) -> dict[str, Any]:
    from rmqctl.format.checkpoint import CHECKPOINT
    from rmqctl.format.timestamp import rfc3339

    fields = [
        {"field": field.name, "value": old, "newValue": new}
        | ({"time": rfc3339(old), "newTime": rfc3339(new)} if at < len(TIMES) else {})
        for at, (field, old, new) in enumerate(zip(CHECKPOINT.fields, plan.before, plan.after, strict=True))
    ]
    return {"path": "checkpoint", "state": _state(plan.size), "bytes": plan.size, "fields": fields}


def _state(size: int | None) -> str:
    from rmqctl.format.checkpoint import CHECKPOINT, CHECKPOINT_FILE_SIZE

    if size is None:
        return "missing"
    if size < CHECKPOINT.size:
        return f"too short: {size} bytes"
    return (
        "whole"
        if size == CHECKPOINT_FILE_SIZE
        else f"of a wrong length: {size} bytes instead of {CHECKPOINT_FILE_SIZE}"
    )
