"""What ends a command, as an exit status."""

from __future__ import annotations

import click

from rmqctl.errors import ExitCode, RmqctlError


def exit_status(error: BaseException) -> ExitCode:
    """The exit status that a command ends with where this ended it."""
    if isinstance(error, RmqctlError):
        return error.exit_code
    if isinstance(error, click.ClickException):
        return ExitCode.USAGE
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return ExitCode.PIPE_CLOSED
    return ExitCode.PARTIAL if isinstance(error, OSError) else ExitCode.BUG
