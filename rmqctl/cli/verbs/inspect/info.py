"""`rmqctl info`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rmqctl.cli.output.render import print_document, print_fields, print_table, print_verdict
from rmqctl.cli.output.tone import Tone
from rmqctl.cli.shared.options import (
    note_unfinished_change,
    open_store,
    output_option,
    store_argument,
)
from rmqctl.cli.shared.verb import STORE_VERB, Verb
from rmqctl.errors import ExitCode
from rmqctl.text import counted, quoted, size_text

EPOCHS_SHOWN = 8
QUEUES_IN = {
    "DLedger": "files; the log is a DLedger group's",
    "files and RocksDB": "files, which are shown, and the same in RocksDB, which `verify` compares",
}


@click.command(
    cls=Verb,
    exit_codes=STORE_VERB,
    examples="""
        # show the contents of a store
        rmqctl info /data/rocketmq/store
        # one number for a script
        rmqctl info store -o json | jq .commitLog.maxPhyOffset
        # a store whose commit log is in another folder
        rmqctl info store --broker-conf /etc/rocketmq/broker.conf
    """,
)
@store_argument
@output_option("table", "json")
def command(store: Path, output: str) -> int:
    """Show the files, offsets, times, topics and broker version of a store.

    The broker version is the version of the broker that wrote the store. `info` reads folders, small files, and the
    beginning and the end of the log. `info` does not scan the log. To check whether the store is whole, use `verify`.
    """
    from rmqctl.forensics.survey.not_read import parts
    from rmqctl.forensics.survey.survey import survey

    opened = open_store(store, log_only=True)
    document = survey(opened, parts(opened))
    if output == "json":
        print_document("info", document)
    else:
        print_verdict(_verdict(document), Tone.ATTENTION if document["abort"] else Tone.GOOD)
        print_fields(_fields(document))
        if document["topics"]:
            print()
            rows = [[topic["topic"], topic["queueCount"], topic["messages"]] for topic in document["topics"]]
            print_table(["TOPIC", "QUEUES", "MESSAGES"], rows)
    note_unfinished_change(opened)
    return int(ExitCode.PARTIAL if opened.partly_read or not opened.path.reads_queues else ExitCode.CLEAN)


def _fields(document: dict[str, Any]) -> list[tuple[str, Any]]:
    log, queues, index = document["commitLog"], document["consumeQueues"], document["index"]
    version, lock = document["version"], document["lock"]
    of_topics = f"{queues['queueCount']} of {counted(queues['topicCount'], 'topic')}"
    holder = "not held" if lock["heldBy"] is None else f"held by {_process(lock['heldBy'])}: a broker runs"
    return [
        ("store", document["store"]),
        *_part_fields(document["parts"]),
        ("written by", f"RocketMQ {version['guess']} (shown by: {', '.join(version['signs'])})"),
        ("  treated as", f"{version['profile']} by `append` and `recover`, unless --profile says otherwise"),
        ("queues in", QUEUES_IN.get(document["layout"], document["layout"])),
        ("lock", holder if lock["file"] else "no lock file"),
        ("abort", "present: a broker runs, or died" if document["abort"] else "absent: shut down cleanly"),
        (
            "commit log",
            (
                f"{counted(log['fileCount'], 'file')} of {size_text(log['fileSize'])}, "
                f"{size_text(log['allocatedBytes'])} on disk"
            ),
        ),
        ("  by topic", f"`rmqctl du {quoted(document['store'])}` reads it, and shows the bytes of each topic"),
        ("  offsets", f"{log['minPhyOffset']} .. {log['maxPhyOffset']}"),
        ("  first message", _moment(log["firstStoreTime"], log["firstStoreTimestamp"])),
        ("  last message", _moment(log["lastStoreTime"], log["lastStoreTimestamp"])),
        *(("  clock went back", _fall(fall)) for fall in log["clockWentBack"]),
        ("  pre-allocated", ", ".join(log["preAllocated"]) or "none"),
        (
            "consume queues",
            of_topics
            if document["layout"] == "RocksDB"
            else f"{of_topics}, {counted(queues['fileCount'], 'file')}, {size_text(queues['allocatedBytes'])} on disk",
        ),
        ("index", f"{counted(index['fileCount'], 'file')}, {size_text(index['allocatedBytes'])} on disk"),
        *_checkpoint_fields(document["checkpoint"]),
        *_timer_fields(document["timer"]),
        *_controller_fields(document["controller"]),
        *(("attention", f"{one['path']}: {one['detail']} [{one['code']}]") for one in document["anomalies"]),
    ]


def _verdict(document: dict[str, Any]) -> str:
    messages = sum(topic["messages"] for topic in document["topics"])
    state = "a broker runs, or died" if document["abort"] else "shut down cleanly"
    last = f"; the last from {document['commitLog']['lastStoreTime']}" if document["commitLog"]["lastStoreTime"] else ""
    return f"{counted(messages, 'message')} in {counted(len(document['topics']), 'topic')}{last}; {state}"


def _part_fields(parts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Say first what the store has, each part once, and what of it is not read."""
    read = dict.fromkeys(part["name"] for part in parts if part["read"])
    words = []
    for name in read:
        named = [part for part in parts if part["read"] and part["name"] == name]
        paths = [part["path"] for part in named if part["database"]]
        files = "files, " if len(paths) < len(named) else ""
        words.append(f"{name} ({files}{', '.join(paths)}: RocksDB)" if paths else name)
    unread: dict[str, list[str]] = {}
    for part in parts:
        if not part["read"]:
            unread.setdefault(part["detail"], []).append(part["path"])
    return [("reads", ", ".join(words)), *(("  not", _unread(paths, why)) for why, paths in unread.items())]


def _unread(paths: list[str], why: str) -> str:
    what = ", ".join(map(quoted, paths))
    return f"missing: {what} ({why})" if why.startswith("although") else f"{what} ({why})"


def _process(pid: int) -> str:
    return f"pid {pid}" if pid else "a process outside this container"


def _checkpoint_fields(checkpoint: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if checkpoint is None:
        return [("checkpoint", "missing")]
    names = (("checkpoint log", "physicMsg"), ("  queues", "logicsMsg"), ("  index", "indexMsg"))
    return [(name, _moment(checkpoint[key + "Time"], checkpoint[key + "Timestamp"])) for name, key in names]


def _timer_fields(timer: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if timer is None:
        return []
    if timer["lastReadTimestamp"] is None:
        return [("timer", "config/timercheck cannot be read")]
    time = _moment(timer["lastReadTime"], timer["lastReadTimestamp"])
    return [("timer", f"delivered what was due before {time}; `rmqctl queue STORE --timer` lists the rest")]


def _controller_fields(controller: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """Return the fields of a store whose broker runs with a controller."""
    if controller is None:
        return []
    names = [controller[key] for key in ("brokerClusterName", "brokerName", "brokerId")]
    epochs = ", ".join(
        f"{entry['epoch']} from {entry['startOffset']}" for entry in controller["epochs"][-EPOCHS_SHOWN:]
    )
    identity = "none: the broker has not registered" if None in names else "#".join(map(str, names))
    problems = [("attention", problem) for problem in controller["problems"]]
    return [("controller mode", identity), ("  epochs", epochs or "none"), *problems]


def _fall(fall: dict[str, Any]) -> str:
    times = (_moment(fall[f"{name}Time"], fall[f"{name}Timestamp"]) for name in ("from", "to"))
    return f"at offset {fall['physicalOffset']}, from {' to '.join(times)}"


def _moment(time: str | None, raw: int | None) -> str:
    return "none" if not raw else f"{time or 'no date'} ({raw})"
