"""`rmqctl trace`."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqctl.cli.output.render import print_document, progress
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import kept, options_in
from rmqctl.cli.shared.options import (
    bodies_of,
    note_failed_bodies,
    note_unread,
    open_store,
    output_option,
    scan_options,
    stores_argument,
)
from rmqctl.cli.shared.trace_question import LIMIT, TraceOptions, question_of, trace_options
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.cli.views.inspect.trace_view import print_diagram, print_trace
from rmqctl.errors import ExitCode, outcome

if TYPE_CHECKING:
    from rmqctl.forensics.trace.trace import Question, Trace
    from rmqctl.format.body.bodies import Bodies
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # where the message of order 4711 is, and who has consumed the message
        rmqctl trace store --key order-4711
        # a message by the id that its producer got, on all brokers of a cluster
        rmqctl trace broker-a/store broker-b/store --unique-key 0A010200000000000000000000000018
        # only the messages of one topic that have the key
        rmqctl trace store --key order-4711 --topic OrderPaid
        # a message by the id that a broker gave the message
        rmqctl trace store --msg-id C0A8070900002A9F00000000000037EE
        # transactions without an end, and delayed messages that are overdue
        rmqctl trace store --unresolved
        # a sequence diagram for a report
        rmqctl trace store --key order-4711 --mermaid > order.mmd
    """,
)
@stores_argument
@trace_options
@click.option(
    "--unresolved",
    is_flag=True,
    help="In place of one message, list all half messages without commit or rollback, and all delayed messages that "
    "are overdue, or that the offset of their delay level has skipped. Ages count up to the last message of the log. "
    "Timer messages of 5.x are not listed.",
)
@click.option("--mermaid", is_flag=True, help="Print a sequence diagram in Mermaid's language.")
@output_option("table", "json")
@scan_options
@options_in(asked=TraceOptions)
def command(
    stores: tuple[Path, ...],
    limit: int,
    scan: bool,
    body: str | None,
    charset: str | None,
    unresolved: bool,
    mermaid: bool,
    output: str,
    threads: int,
    asked: TraceOptions,
) -> int:
    """Show the life of one message: its copies, and which groups consumed it.

    The first line of the output is the verdict. After the verdict, `trace` prints the stages of the message's life.
    Each copy of the message in the log is a stage. The stages include half messages, delayed messages, retries, dead
    letters and LMQs. Op messages of transactions are stages. Checkpoints and acknowledgements of POP consumers are
    stages; COMES AGAIN (`visibleTime` in JSON) says when a message that a group popped and has not acknowledged is
    visible again. After the stages, `trace` prints the state of each consumer group, and the records of clients in
    RMQ_SYS_TRACE_TOPIC. STORE... are the stores of one or more brokers of a cluster.

    `trace` searches the index first. `trace` reads the log if the index is missing or incomplete, or if nothing is
    found. A message of a compacted topic (5.1 and later) that the log no longer has is found in compaction/, with its
    place in compactionLog as PHYSICALOFFSET. If no store has the message, the exit code is 1. If nothing is found, the
    verdict says what was searched, and what is known about the message. With --unresolved, the exit code is 1 if a
    message waits.
    """
    from rmqctl.forensics.trace.document import document

    if unresolved:
        return _list_unresolved(stores, output, asked)
    question, bodies = question_of(asked), bodies_of(body, charset)
    if mermaid and output != "table":
        raise click.UsageError("give --mermaid or -o json, not both")
    opened = [open_store(store, log_only=True) for store in stores]
    trace = traced(opened, question, threads, by_scan=scan, limit=limit, bodies=bodies)
    found = document(trace, [str(store) for store in stores])
    if mermaid:
        print_diagram(found)
    elif output == "json":
        print_document("trace", found)
    else:
        print_trace(found)
    note_failed_bodies(bodies)
    _note_unread(stores, opened)
    return int(exit_code_of(trace))


def traced(
    stores: list[ReadOnlyStore],
    question: Question,
    threads: int,
    *,
    by_scan: bool = False,
    limit: int = LIMIT,
    bodies: Bodies | None = None,
) -> Trace:
    """Trace a message, and show the progress if the log is read."""
    from rmqctl.forensics.trace.trace import Trace

    with ExitStack() as stack:
        begin_scan = cache(partial(_begin_scan, stores, stack))  # once; the index is enough for most searches
        return Trace(
            stores,
            question,
            threads=threads,
            warm_up=begin_scan,
            by_scan=by_scan,
            limit=limit,
            bodies=bodies or bodies_of(None, None),
        )


def _note_unread(paths: tuple[Path, ...], stores: list[ReadOnlyStore]) -> None:
    for path, store in zip(paths, stores, strict=True):
        note_unread(store, f"{path}: " if len(paths) > 1 else "")


def _list_unresolved(stores: tuple[Path, ...], output: str, asked: TraceOptions) -> int:
    """Print the messages that wait for too long. Return the exit code."""
    from rmqctl.cli.views.inspect.trace_view import print_unresolved
    from rmqctl.forensics.trace.unresolved import unresolved, verdict

    if any(value is not None for value in vars(asked).values()):
        raise click.UsageError("--unresolved lists all such messages: give no id, key, offset or topic with it")
    opened = [open_store(store) for store in stores]
    rows = [row for name, store in zip(stores, opened, strict=True) for row in unresolved(store, str(name))]
    if output == "json":
        names = [str(store) for store in stores]
        empty = {"stages": [], "groups": [], "clientRecords": [], "searched": [], "leftOut": 0, "remarks": []}
        head = {"store": names[0], "stores": names, "found": bool(rows), "verdict": verdict(rows)}
        print_document("trace", head | empty | {"unresolved": rows})
    else:
        print_unresolved(verdict(rows), rows)
    _note_unread(stores, opened)
    return int(outcome(incomplete=any(store.partly_read for store in opened), findings=bool(rows)))


def exit_code_of(trace: Trace) -> ExitCode:
    """Return the exit code of a trace."""
    incomplete = trace.incomplete or any(store.partly_read for store in trace.stores)
    return outcome(incomplete=incomplete, findings=not trace.lives)


def _begin_scan(stores: list[ReadOnlyStore], stack: ExitStack) -> None:
    """Load the kernels, and show the progress until `stack` is closed."""
    from rmqctl.kernels import filter_scan, scan
    from rmqctl.kernels.warm_up import warm_up

    size = sum(store.commit_log.queue.allocated for store in stores)
    warmed_up(lambda: warm_up(scan, filter_scan, size=size))
    total = sum(store.commit_log.size for store in stores)
    advance = stack.enter_context(progress(kept("progress_mode"), total, "trace"))
    for store in stores:
        store.commit_log.on_progress = advance
