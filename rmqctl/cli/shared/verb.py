"""A verb of the command line: a click command with examples and exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.printable import printable
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EVERY_VERB = (ExitCode.CLEAN, ExitCode.USAGE, ExitCode.BUG, ExitCode.INTERRUPTED, ExitCode.PIPE_CLOSED)
STORE_VERB = (*EVERY_VERB, ExitCode.PARTIAL, ExitCode.NOT_A_STORE, ExitCode.LAYOUT)
SCAN_VERB = (*STORE_VERB, ExitCode.FINDINGS)
CHANGE_VERB = (*STORE_VERB, ExitCode.FINDINGS, ExitCode.IN_USE, ExitCode.NOT_CONFIRMED)
QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
PROPOSED_MAX = 1000


def flush_output() -> None:
    """Flush stdout.

    If stdout cannot be written, for example because the disk is full, raises an OSError with the file name stdout.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise OSError(error.errno, error.strerror, "stdout") from error


@contextmanager
def naming_stdout() -> Iterator[None]:
    """Let an OSError name stdout if stdout could not be written in the block."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            flush_output()  # what could not be written is still in the buffer: it fails again, by name
        raise


def drop_output() -> None:
    """After a failed write to stdout, discard the data in the buffer of stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Verb(click.Command):
    """A click command that shows examples and exit codes in its help.

    `examples` has two lines for each example: `# what the command does`, and the command line. The man page of the
    command also shows the examples and exit codes.
    """

    def __init__(
        self,
        *args: Any,
        examples: str = "",
        exit_codes: tuple[ExitCode, ...] = EVERY_VERB,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        complete_names(self.params)
        lines = inspect.cleandoc(examples).splitlines()
        self.examples = [(line, what.removeprefix("# ")) for what, line in zip(lines[::2], lines[1::2], strict=True)]
        self.exit_codes = tuple(sorted(exit_codes))

    def exit_code_meanings(self) -> dict[ExitCode, str]:
        """Return the exit codes of this verb, each with its meaning."""
        meanings = {code: EXIT_CODE_MEANINGS[code] for code in self.exit_codes}
        if any("--dry-run" in parameter.opts for parameter in self.params):
            meanings[ExitCode.FINDINGS] += "; with --dry-run: something to do"
        return meanings

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples and exit codes after the options."""
        if self.examples:
            with formatter.section("Examples"):
                for line, what in self.examples:
                    formatter.write_text(f"# {what}")
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in self.exit_code_meanings().items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb.

        If the program that reads stdout has ended, the verb ends without a message, with the exit code 141.
        """
        try:
            with naming_stdout():
                status = super().invoke(ctx)
            flush_output()
        except BrokenPipeError:
            drop_output()
            ctx.exit(ExitCode.PIPE_CLOSED)
        return status


class NameType(click.types.StringParamType):
    """The type of a parameter whose value the shell completes.

    The function `names` returns the possible values and their meanings. The meaning of a value may be an empty text.
    """

    def __init__(self, names: Callable[[click.Context], Mapping[str, str]]) -> None:
        self._names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Propose the names that begin with `incomplete`, or no names after an error.

        A name is left out if a terminal cannot show it as it is, or if it would be read as an option.
        """
        from click.shell_completion import CompletionItem

        unfit = ("-",) if isinstance(param, click.Argument) else ()
        try:
            found = [
                (name, meaning)
                for name, meaning in self._names(ctx).items()
                if name.startswith(incomplete) and not name.startswith(unfit) and printable(name) == name
            ]
        except (OSError, ValueError):
            return []
        return [CompletionItem(name, help=meaning or None) for name, meaning in found[:PROPOSED_MAX]]


def complete_names(parameters: Iterable[click.Parameter]) -> None:
    """Add completion to the parameters that TYPES lists.

    The shell completes arguments and options whose names are in TYPES. Verbs contain no code for completion. Completion
    must be fast and silent. Completion lists folders and reads small files, but never reads the log. After an error,
    completion proposes nothing.
    """
    for parameter in parameters:
        if parameter.type is click.STRING and parameter.name in TYPES:
            parameter.type = TYPES[parameter.name]


def _store_of(context: click.Context) -> Path:
    """Return the store in an incomplete command line.

    If the last option has no value yet, click leaves the store in `args`. Raises ValueError if the command line has no
    store.
    """
    typed = context.params.get("store") or (context.params.get("stores") or context.args or [None])[0]
    if typed is None:
        raise ValueError("no store yet")
    return Path(typed)


def _topics(context: click.Context) -> dict[str, str]:
    """Return the topics that have queues. If no topic has a queue, read topics.json."""
    store = _store_of(context)
    folders = [store / folder for folder in QUEUE_FOLDERS]
    found = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir() if entry.is_dir()}
    return dict.fromkeys(sorted(found or _table(store, "topics.json", "topicConfigTable")), "")


def _groups(context: click.Context) -> dict[str, str]:
    """Return the groups in consumerOffset.json and in subscriptionGroup.json."""
    store = _store_of(context)
    with_offset = {key.partition("@")[2] for key in _table(store, "consumerOffset.json", "offsetTable")} - {""}
    configured = set(_table(store, "subscriptionGroup.json", "subscriptionGroupTable"))
    return dict.fromkeys(sorted(with_offset | configured), "")


def _table(store: Path, name: str, key: str) -> dict[str, Any]:
    """Load the file `name` of config/ as a broker does, and return its table `key`."""
    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.config.config_file import load_config, table

    return table(load_config(Storage(store), store / "config", name), key)


def _codes(_: click.Context) -> dict[str, str]:
    """Return the codes that `explain` knows, each with its meaning."""
    from rmqctl.forensics.catalogue.catalogue import CATALOGUE, TERMS
    from rmqctl.forensics.doctor.causes import CAUSES

    found = {code: explained.meaning.split(". ")[0] for code, explained in (CATALOGUE | TERMS).items()}
    found |= {code: cause.means.split(". ")[0] for code, cause in CAUSES.items()}
    return found | {str(int(code)): meaning for code, meaning in EXIT_CODE_MEANINGS.items()}


TYPES = {
    "topic": NameType(_topics),
    "topics": NameType(_topics),
    "group": NameType(_groups),
    "groups": NameType(_groups),
    "code": NameType(_codes),
}
