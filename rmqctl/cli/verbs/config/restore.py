"""`rmqctl config restore`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_fields, print_table_of
from rmqctl.cli.shared.change import LogChangeOptions, Words, check_may_change
from rmqctl.cli.shared.confirm import change_options
from rmqctl.cli.shared.first_run import warmed_up
from rmqctl.cli.shared.option_class import options_in
from rmqctl.cli.shared.options import (
    open_store,
    output_option,
    profile_option,
    scan_options,
    scan_progress,
    store_argument,
)
from rmqctl.cli.shared.verb import CHANGE_VERB, Verb
from rmqctl.cli.views.change.config_change_view import change_config
from rmqctl.store.config.config_file import CONFIG_FILES, CONFIG_FILES_OF_5, GROUPS_CONFIG, TOPICS_CONFIG

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.operations.configuration.restore_plan import RestorePlan, Source
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WHOLE = "whole"
COLUMNS = {
    TOPICS_CONFIG: ("topic", "readQueueNums", "writeQueueNums", "perm"),
    GROUPS_CONFIG: ("group", "consumeEnable", "retryMaxTimes", "retryQueueNums"),
}


@dataclass(frozen=True)
class RestoreOptions:
    """The options of `rmqctl config restore`."""

    file: str
    source: Source | None
    profile: Profile | None


@click.command(
    "restore",
    cls=Verb,
    exit_codes=CHANGE_VERB,
    examples="""
        # topics.json is missing or broken: show the content that restore would write
        rmqctl config restore store topics.json --dry-run
        # restore the content from before the broker's last change
        rmqctl config restore store topics.json --from bak --yes
        # add the topics of all queues that the file does not list
        rmqctl config restore store topics.json --from store --yes
    """,
)
@store_argument
@click.argument("file", type=click.Choice(CONFIG_FILES + CONFIG_FILES_OF_5), metavar="FILE")
@click.option(
    "--from",
    "source",
    type=click.Choice(("bak", "store")),
    help="`bak` restores the content of FILE.bak. `store` rebuilds FILE from the queues, the log and the other "
    "files of config/.  [default: bak if FILE.bak has the entries that FILE lost, otherwise store; a good "
    "FILE stays unchanged]",
)
@profile_option("Write new entries as brokers of this version do.")
@change_options
@output_option("table", "json")
@scan_options
@options_in(asked=RestoreOptions, how=LogChangeOptions)
def command(store: Path, asked: RestoreOptions, how: LogChangeOptions) -> int:
    """Restore a file of config/, such as topics.json.

    A broker serves only the topics in topics.json. A broker serves a queue only if the queueId is below the topic's
    readQueueNums. If a broker can load neither the file nor its .bak, the broker does not start, or starts with an
    empty configuration.

    FILE is the name of one of the broker's files in config/: topics.json, subscriptionGroup.json, consumerOffset.json,
    lmqConsumerOffset.json, delayOffset.json, consumerFilter.json. 5.x also has consumerOrderInfo.json, timermetrics and
    transactionMetrics. `restore` can restore each file from its .bak.

    Only topics.json and subscriptionGroup.json can be rebuilt from the store. `restore` keeps the entries of FILE, and
    adds the entries that FILE lacks. If a broker cannot load FILE, `restore` keeps the entries of FILE.bak. `restore`
    finds topics in the folders of the queues and in the offsets of groups. If `restore` finds no entry to keep,
    `restore` also searches the whole log for topics. `restore` takes the number of a topic's queues from the store. A
    topic with batch consume queues gets queue.type=BatchCQ. `restore` finds groups in the %RETRY% topics, in the
    offsets, and in the other files of config/. Read the plan before you confirm the change: if queues of a deleted
    topic exist, `restore` adds the deleted topic again.

    While a broker has the store open, `restore` exits with 11, even with --dry-run.
    """
    from rmqctl.operations.configuration.restore_plan import plan_restore
    from rmqctl.store.journal.journals import CONFIG_VERB
    from rmqctl.store.read.version_guess import guess_profile

    opened = open_store(store)
    check_may_change(opened, log_stays=True)
    profile = asked.profile or guess_profile(opened)
    plan = plan_restore(opened, profile, asked.file, asked.source, lambda: _queues_in_log(opened, how))
    name = f"config/{plan.name}"
    words = Words(CONFIG_VERB + "restore", plan.summary, f"Restore {name}?", f"{name} is restored")
    files = [plan.change] if plan.change is not None else []
    return change_config(
        opened, files, _document(plan, profile.name), _print, words, f"{name} {_why_nothing(plan)}", how
    )


def _queues_in_log(store: ReadOnlyStore, how: LogChangeOptions) -> list[QueueKey]:
    from rmqctl.operations.configuration.names_in_store import prepare_scan, queues_in_log

    warmed_up(lambda: prepare_scan(store))
    with scan_progress(store, "restore"):
        return queues_in_log(store, how.threads)


def _why_nothing(plan: RestorePlan) -> str:
    if plan.source is None:
        return "can be loaded by a broker"
    return "has the content of its .bak" if plan.source == "bak" else "has all that the store shows"


def _document(plan: RestorePlan, profile: str) -> dict[str, Any]:
    name = {TOPICS_CONFIG: "topic", GROUPS_CONFIG: "group"}.get(plan.name)
    rows = [{name: key} | entry for key, entry in plan.entries.items()] if name is not None else []
    return {
        "path": f"config/{plan.name}",
        "state": plan.problem or WHOLE,
        "restoredFrom": plan.source,
        "profile": profile,
        "topics": rows if plan.name == TOPICS_CONFIG else [],
        "groups": rows if plan.name == GROUPS_CONFIG else [],
        "notes": list(plan.notes),
    }


def _print(document: dict[str, Any]) -> None:
    print_fields((key, document[key]) for key in ("path", "state", "restoredFrom"))
    for key, keys in zip(("topics", "groups"), COLUMNS.values(), strict=True):
        if document[key]:
            print()
            print_table_of(keys, document[key])
