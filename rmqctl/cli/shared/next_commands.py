"""The command that rmqctl proposes next, for each finding, term and exit code.

In a proposed command, STORE is the store, OFFSET is the finding's physical offset, and VERB is the verb that was run.
After --broker-conf, FILE is the broker's broker.conf. After `config restore STORE`, FILE is the name of a file of
config/. After `>`, FILE is any file for the output. VERSION
is the version that `preflight` was asked about, and NEW a folder for a new store.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.errors import ExitCode


class Advice(NamedTuple):
    """Advice for an exit code, with the command to type next."""

    then: str
    command: str


CODES_OF_COMMANDS: dict[str, tuple[str, ...]] = {
    "rmqctl recover STORE --dry-run": (
        "bad-magic", "bad-size", "bad-length", "bad-body-crc", "bad-blank-size", "no-blank", "hole", "file-length",
        "dangling-unit", "abort", "checkpoint-missing", "checkpoint-length", "queue-database-differs",
    ),
    "rmqctl heal STORE --dry-run": ("field-changed",),
    "rmqctl recover STORE --keep-going --dry-run": ("file-gap",),
    "rmqctl dump STORE --around OFFSET": (
        "bad-property-crc", "bad-physical-offset", "bad-queue-offset", "bad-entry", "torn-properties",
        "unit-lost-message", "twin-queue-offset", "half-database-dangling",
    ),
    "rmqctl truncate STORE --dirty --dry-run": ("bytes-behind-end",),
    "rmqctl truncate STORE --to OFFSET --dry-run": ("log-joint",),
    "rmqctl rebuild STORE queues --dry-run": (
        "missing-unit", "unit-mismatch", "unit-size", "unit-tags-code", "unit-order", "unit-hole", "unit-behind-end",
        "ext-missing", "queue-in-both-folders",
    ),
    "rmqctl rebuild STORE index --dry-run": (
        "index-length", "index-header", "index-chain", "index-order", "index-time", "index-dangling", "index-missing",
    ),
    "rmqctl config show STORE": (
        "bad-port", "bad-compression", "offset-beyond-queue", "queue-type", "topic-unlisted", "queue-unreadable",
        "backup-newer", "backup-larger", "config-missing", "database-log",
    ),
    "rmqctl config restore STORE FILE --dry-run": ("config-invalid",),
    "rmqctl config restore STORE FILE --from bak --dry-run": ("config-empty",),
    "rmqctl checkpoint STORE show": ("checkpoint-behind", "checkpoint-ahead"),
    "rmqctl undo STORE --list": ("bad-journal", "placeholder", "unfinished-change"),
    "rmqctl clean STORE --manual --dry-run": ("disk-over-limit",),
    "rmqctl config show STORE delay": ("delay-overdue",),
    "rmqctl queue STORE": ("half-overdue", "log-start-missing", "static-topics-unread"),
    "rmqctl lag STORE": ("offset-went-back", "batch-queues-unread", "pop-unread", "offsets-unread", "tiered-unread"),
    "rmqctl rebuild STORE timers --dry-run": (
        "timer-files-missing", "timer-undelivered", "timer-file-length", "timer-repeats", "timer-beyond-queue",
    ),
    "rmqctl dump STORE --compaction": (
        "compaction-files", "compaction-not-loaded", "compaction-record", "compaction-missing",
        "compaction-beyond-queue", "compaction-position", "compaction-unread",
    ),
    "rmqctl info STORE": (
        "store-times-fall", "entries-missing", "dledger-refused", "epochs-invalid", "epochs-beyond-log",
        "identity-invalid",
    ),
    "rmqctl info STORE --broker-conf FILE": ("log-missing",),
    "rmqctl doctor STORE --broker-conf FILE": (
        "conf-size", "lmq-offsets-missing", "index-database-dangling", "index-database-missing",
    ),
    "rmqctl verify STORE --level 1": ("file-overlap", "foreign-file", "unreadable"),
    "rmqctl verify STORE --follow-links": ("link-not-followed",),
    "rmqctl recover STORE --broker-version VERSION --dry-run": ("target-hangs", "target-loses"),
    "rmqctl dump STORE --body base64 -o jsonl > FILE": ("records-unknown",),
    "rmqctl preflight STORE --to VERSION --convert NEW": (
        "target-refuses", "queues-unread", "queue-database-unread", "config-database-unread", "dledger-unread",
    ),
    "rmqctl queue STORE --timer": ("timers-unread",),
    "rmqctl trace STORE --unresolved": ("half-messages-unread",),
    "rmqctl preflight STORE --to VERSION --broker-conf FILE": ("option-unknown",),
}  # fmt: skip

NEXT_COMMANDS = {code: command for command, codes in CODES_OF_COMMANDS.items() for code in codes}

# the commands for causes of `doctor`; for all other causes, the command is `verify`
CAUSES_OF_COMMANDS: dict[str, tuple[str, ...]] = {
    "rmqctl recover STORE --dry-run": (
        "log-file-length", "log-tail-gone", "record-damaged", "start-refused", "log-file-empty", "queue-file-empty",
        "start-loses", "log-tail-unclean", "queue-ahead", "checkpoint-wrong", "broker-died", "copied-live",
        "database-damaged", "queue-database-behind",
    ),
    "rmqctl heal STORE --dry-run": ("fields-changed",),
    "rmqctl recover STORE --keep-going --dry-run": ("log-file-gone",),
    "rmqctl rebuild STORE queues --dry-run": (
        "log-head-gone", "queues-gone", "queue-gone", "queue-damaged", "queue-behind",
    ),
    "rmqctl rebuild STORE index --dry-run": ("index-gone", "index-damaged"),
    "rmqctl config restore STORE FILE --dry-run": ("config-damaged", "config-lost"),
    "rmqctl config restore STORE FILE --from bak --dry-run": ("config-emptied", "config-rolled-back", "config-shrunk"),
    "rmqctl config restore STORE topics.json --from store --dry-run": ("topics-lost",),
    "rmqctl config show STORE": ("queue-unread", "delay-ahead", "two-queue-types", "config-database-damaged"),
    "rmqctl lag STORE": ("group-ahead", "group-went-back", "offsets-unread"),
    "rmqctl clean STORE --manual --dry-run": ("disk-full",),
    "rmqctl info STORE": (
        "clock-went-back", "broker-runs", "committed-gone", "dledger-file-wrong", "controller-files-wrong",
    ),
    "rmqctl config show STORE delay": ("delay-stalled",),
    "rmqctl queue STORE": ("half-stalled",),
    "rmqctl rebuild STORE timers --dry-run": (
        "timer-gone", "timer-stalled", "timer-refused", "timer-behind", "timer-ahead",
    ),
    "rmqctl dump STORE --compaction": (
        "compaction-refused", "compaction-unloaded", "compaction-damaged", "compaction-gone", "compaction-ahead",
        "compaction-stalled",
    ),
    "rmqctl info STORE --broker-conf FILE": ("log-gone", "broker-conf-wrong"),
    "rmqctl undo STORE --list": ("change-unfinished", "journal-damaged"),
}  # fmt: skip
LOOK_FURTHER = "rmqctl verify STORE"
COMMANDS_OF_CAUSES = {code: command for command, codes in CAUSES_OF_COMMANDS.items() for code in codes}

EXIT_CODE_ADVICE: dict[ExitCode, Advice] = {
    ExitCode.CLEAN: Advice("There is nothing to do. `info` shows what the store holds.", "rmqctl info STORE"),
    ExitCode.FINDINGS: Advice(
        "`explain` says what each finding means. The dry run shows what a repair would do, and what a restart of the "
        "broker would lose.",
        "rmqctl recover STORE --dry-run",
    ),
    ExitCode.USAGE: Advice("The help lists the arguments and options of the verb.", "rmqctl VERB --help"),
    ExitCode.REPAIRED: Advice(
        "Check the store before a broker starts on it. `rmqctl undo STORE` takes the repair back.",
        "rmqctl verify STORE",
    ),
    ExitCode.PARTIAL: Advice(
        "stderr says what failed. If some input could not be read, correct the permissions, use --follow-links, "
        "install the extra `rocksdb`, or copy the disk. `verify` lists every unreadable part. After a failed change, "
        "`rmqctl undo STORE --list` shows whether a change is left.",
        "rmqctl verify STORE --follow-links",
    ),
    ExitCode.NOT_A_STORE: Advice(
        "STORE is the folder that has commitlog/ and consumequeue/: storePathRootDir in broker.conf. If the log lies "
        "elsewhere, give --broker-conf.",
        "rmqctl info STORE --broker-conf FILE",
    ),
    ExitCode.IN_USE: Advice(
        "Stop the broker, or the other rmqctl. `info` shows which process has the store open.", "rmqctl info STORE"
    ),
    ExitCode.NOT_CONFIRMED: Advice(
        "Run the command with --dry-run to see the plan, then with --yes.", "rmqctl VERB STORE --yes"
    ),
    ExitCode.LAYOUT: Advice(
        "`info` shows the layout. Queues in RocksDB need the extra `rocksdb`; without it, `dump` still reads the log.",
        "rmqctl info STORE",
    ),
    ExitCode.BUG: Advice("Report the bug with what --debug shows.", "rmqctl --debug VERB STORE"),
    ExitCode.INTERRUPTED: Advice(
        "A verb that only inspects changed nothing. After another verb, this command shows whether a change is left.",
        "rmqctl undo STORE --list",
    ),
    ExitCode.PIPE_CLOSED: Advice(
        "The program after the pipe ended first, as `head` does. Nothing is wrong. Write to a file to get everything.",
        "rmqctl VERB STORE > FILE",
    ),
}
