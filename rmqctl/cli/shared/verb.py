"""A verb of the command line: a click command with examples and exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from rmqctl.cli.shared.names import complete_names
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode

EVERY_VERB = (ExitCode.CLEAN, ExitCode.USAGE, ExitCode.BUG, ExitCode.INTERRUPTED, ExitCode.PIPE_CLOSED)
STORE_VERB = (*EVERY_VERB, ExitCode.PARTIAL, ExitCode.NOT_A_STORE, ExitCode.LAYOUT)
SCAN_VERB = (*STORE_VERB, ExitCode.FINDINGS)
CHANGE_VERB = (*STORE_VERB, ExitCode.FINDINGS, ExitCode.IN_USE, ExitCode.NOT_CONFIRMED)


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
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"], "max_content_width": 110})
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
