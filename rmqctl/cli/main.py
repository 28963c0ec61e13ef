"""The command `rmqctl`: find the verb, run the verb, and return an exit code.

Any error is reported in one line.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import sys
from typing import Any

import click

from rmqctl import __version__
from rmqctl.cli.output.complaint import report_error
from rmqctl.cli.shared.interruption import not_ignored, repeat_dropped_interrupts, stop_repeating
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode, RmqctlError

# heading of `--help` -> name -> (module in rmqctl.cli, short help): `--help` imports no verb
VERB_GROUPS = {
    "Look at a store": {
        "info": ("verbs.inspect.info", "Show what a store holds: files, offsets, times, topics, checkpoint."),
        "doctor": ("verbs.inspect.doctor", "Say why a store is not healthy, and what to type next."),
        "verify": ("verbs.inspect.verify", "Check whether a store is whole: log, queues, index, checkpoint, config."),
        "dump": ("verbs.inspect.dump", "Print the records of the log, filtered."),
        "queue": ("verbs.inspect.queue", "List the queues, or the units of one."),
        "query": ("verbs.inspect.query", "Find messages by key, id, queue offset or time."),
        "trace": ("verbs.inspect.trace", "Show the life of a message: copies, transactions, retries, who consumed it."),
        "lag": ("verbs.inspect.lag", "Show how far each consumer group is behind, by topic and queue."),
        "du": ("verbs.inspect.du", "Show what takes the space of a store, and when the disk will be full."),
        "report": (
            "verbs.inspect.report",
            "Write one HTML page with pictures of a store, for a person who was not there.",
        ),
        "diff": ("verbs.inspect.diff", "Say what a slave or a copy lacks, and where two stores differ."),
        "preflight": ("verbs.inspect.preflight", "Say what a broker of another version does with a store."),
        "job": ("job.job", "Ask the same questions on Spark, of many or huge stores."),
    },
    "Repair a store": {
        "recover": ("verbs.change.recover", "Repair a store after a crash or damage; --dry-run shows its losses."),
        "heal": ("verbs.change.heal", "Bring damaged records back exactly: from their own bytes, or from a replica."),
        "rebuild": ("verbs.change.rebuild", "Rebuild queues and index from the log."),
        "truncate": ("verbs.change.truncate", "End the log at a record boundary; queues and index follow."),
        "checkpoint": ("verbs.change.checkpoint", "Show the checkpoint, or set its fields."),
        "config": ("verbs.config.config", "Show topics, groups and offsets; set offsets; restore topics.json."),
        "undo": ("verbs.change.undo", "Undo what rmqctl changed in a store, byte for byte."),
    },
    "Add and delete": {
        "append": ("verbs.change.append", "Append one message, or JSON Lines as dump prints them."),
        "clean": ("verbs.change.clean", "Delete expired files, by age, disk usage or a limit; made for cron."),
        "erase": ("verbs.change.erase", "Erase messages for good: every copy, by key, text or offset."),
    },
    "Move messages and copies": {
        "send": ("verbs.copies.send", "Send messages of a store to a live cluster, each once; dead letters, too."),
        "extract": ("verbs.copies.extract", "Copy selected messages into a small store, redacted if you like."),
        "salvage": (
            "verbs.copies.salvage",
            "Bring a log back from disk images, shuffled blocks, any files: a new store.",
        ),
        "acquire": (
            "verbs.copies.acquire",
            "Copy a store as evidence: a BagIt folder with hashes; beside a broker, too.",
        ),
        "attest": ("verbs.copies.attest", "Check such a copy, and name what has changed, within 1 MiB."),
        "replicate": (
            "verbs.copies.replicate",
            "Copy a live master's log and configuration; or audit it over the wire.",
        ),
        "serve": ("verbs.copies.serve", "Send a store to real slaves, as their master does."),
    },
    "rmqctl itself": {
        "explain": ("verbs.explain", "Explain a finding or an exit code, and what to do."),
        "schema": ("verbs.schema", "Print the JSON Schema of a verb's JSON document."),
        "warm-up": ("verbs.warm_up", "Compile what all verbs need, once: for images and cron."),
        "completion": ("completion", "Print the shell completion for bash, zsh or fish."),
    },
}
VERBS = {name: verb for group in VERB_GROUPS.values() for name, verb in group.items()}
NAME_WIDTH = max(map(len, VERBS))
STDERR = 2
SPARK_SESSION = "rmqctl.spark.session.session"  # only jobs import it
# number of objects; a scan creates no cycles, and a search for them takes up to a third of the time
GARBAGE_THRESHOLD = 1_000_000


class Verbs(click.Group):
    """The verbs of rmqctl.

    The module of a verb is imported only when the verb is needed.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs, in the order of VERBS."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a verb and return the verb, or None for an unknown name."""
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"rmqctl.cli.{VERBS[cmd_name][0]}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs and the exit codes, without importing the verbs."""
        for heading, verbs in VERB_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(NAME_WIDTH), text) for name, (_, text) in verbs.items()])
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in EXIT_CODE_MEANINGS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb as click does. For an unknown name, propose similar verbs."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"no verb {args[0]!r}.{hint} `rmqctl --help` lists them.")
        return super().resolve_command(ctx, args)


# the verbs inherit the settings
@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
)
@click.version_option(__version__, "-V", "--version", prog_name="rmqctl")
@click.option("--debug", is_flag=True, help="Show a Python traceback if an unexpected error happens.")
def rmqctl(debug: bool) -> None:
    """Operations and forensics for Apache RocketMQ message stores, offline.

    STORE is the broker's storePathRootDir, or a copy of this folder. STORE contains commitlog/, consumequeue/ and
    index/. Verbs that only inspect STORE never write to STORE. rmqctl writes data to stdout, and everything else to
    stderr.

    RMQCTL_OUTPUT, RMQCTL_THREADS, RMQCTL_PROGRESS and RMQCTL_BROKER_CONF in the environment are defaults of the
    options with these names.
    """


def main() -> None:
    """Run the command line, as the entry point of the program `rmqctl` does."""
    _occupy_standard_descriptors()
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):  # PYTHONUNBUFFERED, as spark-submit sets it: a write could be cut short
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
    for name in [name for name in os.environ if name.startswith("NUMBA_")]:  # such as NUMBA_DISABLE_JIT
        del os.environ[name]
    for number in not_ignored(signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    for number in not_ignored(signal.SIGINT):
        signal.signal(number, signal.default_int_handler)  # no longer that of the entry point
    repeat_dropped_interrupts()
    gc.set_threshold(GARBAGE_THRESHOLD)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads that rmqctl never uses
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # a Python that it starts would import modules of the current folder, maybe a store
    )
    status = run(sys.argv[1:])
    if SPARK_SESSION in sys.modules:
        sys.modules[SPARK_SESSION].end_jvm()
    stop_repeating()
    gc.freeze()  # no search for garbage at the end, because the end of the process frees all memory
    sys.exit(status)


def _occupy_standard_descriptors() -> None:
    """Open /dev/null in the place of closed standard streams.

    Otherwise a file of the store could get descriptor 2, and what a library writes to stderr would go into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _interrupt(*_: object) -> None:
    """End a command on SIGTERM or SIGHUP in the same way as on Ctrl-C.

    After SIGTERM or SIGHUP, the command closes all its open files.
    """
    raise KeyboardInterrupt


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code.

    An error is reported in one line on stderr.
    """
    debug = "--debug" in arguments
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller: `rmqctl ... <&-`
            setattr(sys, name, click.open_file(os.devnull, mode))
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
    if "_RMQCTL_COMPLETE" in os.environ:
        from rmqctl.cli.completion import add_shells

        add_shells()
    try:
        status = rmqctl.main(arguments, prog_name="rmqctl", standalone_mode=False, obj=tuple(arguments))
    except SystemExit as end:  # from click: the reader of a help text is gone, or a shell completion ended
        if not end.code:
            return int(ExitCode.CLEAN)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # from 3.13, Python complains at its end
        return int(ExitCode.PIPE_CLOSED)
    except (Exception, KeyboardInterrupt) as error:  # even a bug of rmqctl is reported in one line
        stop_repeating()
        if debug and not isinstance(error, click.ClickException | click.Abort | KeyboardInterrupt | RmqctlError):
            raise
        return report_error(error)
    return int(status or 0)
