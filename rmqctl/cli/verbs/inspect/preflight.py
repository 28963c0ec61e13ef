"""`rmqctl preflight`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_document, print_line_of_text, remark
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.next_commands import NEXT_COMMANDS
from rmqctl.cli.shared.option_class import kept
from rmqctl.cli.shared.options import (
    VERSION,
    LocalPath,
    check_outside,
    conf_of,
    note_unread,
    open_store,
    output_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import SCAN_VERB, Verb
from rmqctl.errors import outcome
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from rmqctl.forensics.preflight.preflight import Preflight, Problem
    from rmqctl.operations.convert.conversion import Conversion
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.read.read_only_store import ReadOnlyStore


@click.command(
    cls=Verb,
    exit_codes=SCAN_VERB,
    examples="""
        # what does a broker of 5.5.0 make of this store?
        rmqctl preflight /data/rocketmq/store --to 5.5.0
        # the way back, with the broker.conf that the older broker is to have
        rmqctl preflight store --to 4.9.7 --broker-conf broker-4.9.conf
        # the same store for that broker: the source is only read
        rmqctl preflight store --to 4.9.7 --broker-conf broker-4.9.conf --convert store-4.9
        # why not, for a script
        rmqctl preflight store --to 4.9.7 -o json | jq -r '.problems[].summary'
    """,
)
@store_argument
@click.option("--to", "version", type=VERSION, required=True, help="The exact version of the broker, such as 5.5.0.")
@click.option(
    "--convert",
    "new",
    metavar="NEW",
    type=LocalPath(),
    help="Write a new store for this broker to the folder NEW, and answer for it. STORE stays as it is.",
)
@output_option("table", "json")
@scan_options
def command(store: Path, version: str, new: Path | None, output: str, threads: int) -> int:
    """Say what a broker of another version does with a store, before it does.

    `preflight` simulates the start of a broker of that version, newer or older, and says whether it starts, what it
    drops, and what it does not read: long topics, batch queues, queues and configuration in RocksDB, DLedger's log,
    timers, popped messages, and other things that the version does not know. Each problem comes with the command that
    prepares the store, or that shows what to do first. The exit code is 0 if nothing is lost or unread.

    --broker-conf is the broker.conf of that broker. Its names that the version ignores are problems, too: brokers do
    not even warn. What it does not set has the broker's default, also file sizes. Without --broker-conf, the broker
    has the file sizes and the layout of the store, as far as the version knows it.

    --convert writes the store anew: an ordinary log instead of DLedger's, queues in files instead of RocksDB or the
    other way round (storeType in broker.conf), files of the sizes in broker.conf, the index by the rules of the
    version. Queue offsets, messages and the positions of groups stay. With another size of log files, or without
    DLedger's headers, messages lie at other physical offsets, which are a part of their offsetMsgId. What cannot be
    kept is listed. For queues in RocksDB, NEW has `abort` and no checkpoint, so that the first start of the broker
    fills them from the log. Stop the broker before. The answer, and the exit code, are then about NEW; 4 is also for a
    part of STORE that was not read.
    """
    from rmqctl.forensics.preflight.preflight import preflight
    from rmqctl.kernels import cq_unit_build, dispatch_scan, index_build, scan
    from rmqctl.kernels.warm_up import warm_up
    from rmqctl.store.config.broker_conf import BrokerConf, broker_conf_of
    from rmqctl.store.config.java_properties import JavaProperties

    said = JavaProperties(kept("broker_conf")) if kept("broker_conf") is not None else None
    conf = BrokerConf() if said is None else broker_conf_of(said)
    # the store as it is: this broker.conf is another broker's, and only says where else the log may be
    is_here = (store / "commitlog").is_dir()
    opened = open_store(store, conf=BrokerConf(commitlog_paths=() if is_here else conf.commitlog_paths))
    kernels = (scan, dispatch_scan) if new is None else (scan, dispatch_scan, cq_unit_build, index_build)
    warmed_up(partial(warm_up, *kernels, size=opened.allocated))
    converted, source = None, opened
    if new is not None:
        converted = _converted(opened, new, version, conf, threads)
        store, opened = new, open_store(new, conf=BrokerConf())
    conf = conf_of(store, kept("broker_conf"))  # the same, with a note if it names another store
    with opened.storage.keeping_small_files(), scan_progress(opened, "preflight"):
        found = preflight(opened, conf, {} if said is None else said.first_lines(), version, threads, source=source)
    next_of = partial(_next, store=store, version=version, is_new=new is not None)
    problems = [
        {"code": one.code, "summary": one.summary, "count": one.number, "next": next_of(one)} for one in found.problems
    ]
    if output == "json":
        made = {"converted": converted.to_json()} if converted is not None else {}
        print_document("preflight", {"store": str(store)} | found.to_json() | {"problems": problems} | made)
    else:
        if converted is not None:
            print_line_of_text(f"{store}: {counted(converted.messages, 'message')} written for {version}")
            for line in converted.not_kept:
                print_line_of_text(f"not kept: {line}")
            if opened.path.is_refilled:
                print_line_of_text("the first start of the broker fills the queues in RocksDB from the log")
        _print(found, problems)
    note_unread(opened)
    if source is not opened:
        note_unread(source, f"{source.path.root}: ")
    if opened.lock_holder() is not None:
        remark("note: a broker has the store open: this is what a start would do if it died now")
    return outcome(incomplete=source.partly_read or opened.partly_read, findings=bool(problems))


def _converted(opened: ReadOnlyStore, new: Path, version: str, conf: BrokerConf, threads: int) -> Conversion:
    from rmqctl.operations.convert.conversion import Converter
    from rmqctl.store.journal.journals import in_use

    check_outside(new, opened, "NEW")
    if opened.lock_holder() is not None:
        raise in_use(opened.path.root)
    with scan_progress(opened, "convert"):
        return Converter(opened, Path(os.path.realpath(new)), version, conf).run(threads)


def _next(problem: Problem, *, store: Path, version: str, is_new: bool) -> str:
    conf, command = kept("broker_conf"), NEXT_COMMANDS[problem.code]
    if problem.line:
        return f"remove line {problem.line} of {quoted(conf)}"
    if is_new and "--convert" in command:  # it was written for this broker
        return f"rmqctl explain {problem.code}"
    words = {"STORE": quoted(store), "VERSION": version, "NEW": quoted(f"{str(store).rstrip('/')}-{version}")}
    if conf is not None:
        words["VERSION"] += f" --broker-conf {quoted(conf)}"  # it is that of the broker of this version
    return " ".join(words.get(word, word) for word in command.split(" "))


def _print(found: Preflight, problems: list[dict[str, Any]]) -> None:
    lost = found.restart.lost.records
    verdict = {True: "starts", False: "does not start", "hangs": "hangs at its start"}[found.starts]
    words = [f"{found.version} {verdict}"]
    words += [f"and loses {counted(lost, 'message')}"] if lost else []
    words += [f"{counted(len(problems), 'problem')}"] if problems else ["nothing is lost or unread"]
    print_line_of_text(f"{' '.join(words[:-1])}: {words[-1]}")
    for problem in problems:
        print()
        print_line_of_text(f"{problem['code']}: {problem['summary']}")
        print_line_of_text(f"  next: {problem['next']}")
    if found.notes:
        print()
    for note in found.notes:
        print_line_of_text(f"note: {note}")
