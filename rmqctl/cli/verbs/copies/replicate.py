"""`rmqctl replicate`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import LocalPath, output_option, scan_options
from rmqctl.cli.shared.sizes import rate_option
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb
from rmqctl.cli.views.change.replicate_run import ReplicateOptions, ReplicateRun


@click.command(
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples="""
        # copy the log and the configuration of a live broker, and end
        rmqctl replicate 10.1.2.3:10911 mirror --once --yes
        # stay, and copy each message as it arrives
        rmqctl replicate 10.1.2.3:10911 mirror --yes
        # take at most 20 MB a second from a busy broker
        rmqctl replicate 10.1.2.3:10911 mirror --once --max-bytes-per-second 20MB --yes
        # check each record of a live broker's log, and store nothing
        rmqctl replicate 10.1.2.3:10911 --verify-only
    """,
)
@click.argument("broker", metavar="HOST:PORT")
@click.argument("store", type=LocalPath(), required=False)
@click.option("--once", is_flag=True, help="Exit when STORE has the master's log and configuration.")
@click.option("--verify-only", is_flag=True, help="Check the whole log as it arrives, and store nothing.")
@rate_option
@click.option(
    "--as-slave",
    is_flag=True,
    help="Count as a slave: acknowledge bytes to the master after they are flushed to this machine's disk. With "
    "--as-slave, a put to a SYNC_MASTER can succeed without a real slave.",
)
@click.option(
    "--allow-slow-puts",
    is_flag=True,
    help="Also copy a SYNC_MASTER of 4.x. If the master has no slave, each put takes 3 s while the copy runs.",
)
@change_options
@output_option("table", "json")
@scan_options
@options_in(asked=ReplicateOptions)
def command(broker: str, store: Path | None, asked: ReplicateOptions) -> int:
    """Copy a live master's log and configuration into a store.

    HOST:PORT is the broker's address for clients (listenPort). `replicate` asks the broker for its HA port, its file
    sizes, and the offsets where its log begins and ends. If STORE does not exist, `replicate` creates STORE. The copy
    begins at the first offset of the master's log, and has the same bytes as the log. When a record arrives, replicate
    checks the record's offset, lengths and checksums. `replicate` stores only whole records. `replicate` also builds
    the queues and the index.

    `replicate` also fetches topics, groups, offsets of groups and delay levels, as a slave does. A broker that starts
    on STORE serves all messages, except messages of topics with cleanup.policy=COMPACTION (5.x). Each consumer group
    continues at its offsets. Brokers of 5.x serve topics with cleanup.policy=COMPACTION from the folder compaction/,
    and `replicate` does not build compaction/.

    You can interrupt a copy at any time, even with SIGKILL. If you repeat the command, `replicate` continues at the end
    of STORE. `replicate` compares the last bytes of STORE with the bytes of the master. If STORE has another log,
    `replicate` exits with 1 and does not change the log. Without --once, `replicate` runs until Ctrl-C, and connects
    again after a restart of the master.

    By default, the copy acknowledges no message to the master. For a put that waits for a slave, the copy does not
    count. With a controller (5.x), the copy is an asynchronous learner. If a SYNC_MASTER of 4.x has no real slave, each
    put takes 3 s while a copy is connected. Therefore `replicate` refuses a SYNC_MASTER of 4.x, unless
    --allow-slow-puts or --as-slave is given. With --as-slave, the master counts the copy as a slave.

    `replicate` exits with 4 if the broker cannot be reached or breaks the protocol. `replicate` exits with 1 if the
    master's log is damaged or has expired, or if STORE has another log than the master.
    """
    if asked.verify_only == (store is not None):
        wrong = "--verify-only stores nothing: leave out STORE" if store else "give STORE, or --verify-only"
        raise click.UsageError(wrong)
    if asked.verify_only and asked.as_slave:
        raise click.UsageError("--verify-only stores nothing, so it can acknowledge nothing: leave out --as-slave")
    return ReplicateRun(broker, store, asked).run()
