"""`rmqctl verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.complaint import report_error
from rmqctl.cli.output.render import print_next, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.options import (
    ignore_receipts_option,
    note_unfinished_change,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    stores_argument,
    target_words,
    verbose_option,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.verify_view import VerifiedStore, exit_code_of, print_report, print_stores, remark_summary
from rmqctl.errors import RmqctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqctl.forensics.verify import VerifyReport
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # everything: log, queues, index, checkpoint, configuration
        rmqctl verify /data/rocketmq/store
        # only the log: structure, checksums, offsets
        rmqctl verify store --level 1
        # how many findings of each kind
        rmqctl verify store -o jsonl | jq -r .code | sort | uniq -c
        # all brokers of a cluster, one after the other
        rmqctl verify /mnt/incident/*/store
        # what a finding means
        rmqctl explain bad-body-crc
    """,
)
@stores_argument
@click.option(
    "--level",
    type=click.IntRange(1, 3),
    default=3,
    help="Level 1 checks the log. Level 2 also checks the queues. Level 3 also checks index, checkpoint and "
    "configuration.",
)
@ignore_receipts_option
@verbose_option
@output_option("table", "json", "jsonl", "csv")
@scan_options
def command(stores: tuple[Path, ...], level: int, ignore_receipts: bool, output: str, threads: int) -> int:
    """Check whether a store is whole.

    Level 1 reads the whole log. Level 1 checks the structure and checksums of records, looks for gaps in the offsets,
    and checks that each file ends with a blank. Level 1 also checks that only zeros follow the end of the log. Level 2
    also compares every message with its queue unit, and every unit with its message. Level 3 also checks the index, the
    checkpoint, abort, and config/*.json. Damage does not stop `verify`. `verify` continues at the next whole record.

    `no findings` is about these parts. `verify` names what else is in the store's folder and not read: for example, the
    files of the timers, or a database.

    -o jsonl and -o csv print each finding on its own line. -o json prints one document. `verify` exits with 1 if there
    are findings, and with 4 if some input could not be read.

    Several stores are verified one after the other. With several stores, a line of -o jsonl or -o csv also has the
    store, and the document of -o json has the list `reports`. If one store cannot be verified, `verify` continues with
    the next store. The exit code is the largest exit code of all stores.
    """
    from rmqctl.forensics.witness.diagnosis import notes_of_repairable

    def verified(store: Path) -> tuple[ReadOnlyStore, VerifyReport]:
        opened = open_store(store, log_only=level == 1)
        return opened, _verify(opened, level, threads, receipts=not ignore_receipts)

    if len(stores) > 1:
        return print_stores(_each(stores, verified), output)
    store, report = verified(stores[0])
    code = print_report(store, report, output)
    # on stderr alone: `job verify` prints the same document, and has no log at hand
    for note in notes_of_repairable(store, report) if level > 1 else ():
        remark(f"note: {note}")
    if report.findings and output == "table":
        print_next(f"rmqctl doctor {target_words(store.path.root)}")
    return code


def _verify(store: ReadOnlyStore, level: int, threads: int, *, receipts: bool) -> VerifyReport:
    from rmqctl.forensics.live_writer import verify_beside_writer
    from rmqctl.forensics.verify import Verification

    verification = Verification(store, level, threads, receipts=receipts)
    with store.storage.keeping_small_files():
        warmed_up(verification.warm_up)
        try:
            with scan_progress(store, "verify"):
                verify_beside_writer(verification, store, level, threads)
        except KeyboardInterrupt:
            remark_summary(verification.report)
            raise
    note_unfinished_change(store)
    return verification.report


def _each(
    stores: tuple[Path, ...], verified: Callable[[Path], tuple[ReadOnlyStore, VerifyReport]]
) -> Iterator[VerifiedStore]:
    """Verify each store, and yield the store with the report or the error."""
    for store in stores:
        try:
            opened, report = verified(store)
        except (RmqctlError, OSError) as error:
            yield VerifiedStore(store, report_error(error), None, str(error))
        else:
            opened.close()
            yield VerifiedStore(store, int(exit_code_of(report)), report)
