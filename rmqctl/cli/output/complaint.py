"""The report of an error: one line on stderr, and an exit status.

The error has ended a command, or the work on one of several stores.
"""

from __future__ import annotations

import os
import sys

import click
from click.core import ParameterSource

from rmqctl.cli.output.render import remark
from rmqctl.errors import AS_OWNER_HINT, ExitCode, RmqctlError, reason


def report_error(error: BaseException) -> int:
    """Report on stderr the error that ended a command, and return the exit status."""
    if isinstance(error, click.ClickException):
        if isinstance(error, click.BadParameter) and error.ctx is not None and error.param is not None:
            source = error.ctx.get_parameter_source(error.param.name or "")
            error.param_hint = error.param.envvar if source is ParameterSource.ENVIRONMENT else error.param_hint
        error.show()
        return int(exit_status(error))
    try:
        remark(f"rmqctl: {_words(error)}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return int(exit_status(error))


def exit_status(error: BaseException) -> ExitCode:
    """Return the exit status for an exception that ended a command."""
    if isinstance(error, RmqctlError):
        return error.exit_code
    if isinstance(error, click.ClickException):
        return ExitCode.USAGE
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return ExitCode.PIPE_CLOSED
    return ExitCode.PARTIAL if isinstance(error, OSError) else ExitCode.BUG


def _words(error: BaseException) -> str:
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, RmqctlError):
        return str(error)
    if isinstance(error, OSError):
        then = f" ({AS_OWNER_HINT})" if isinstance(error, PermissionError) and error.filename else ""
        return f"{error.filename}: {reason(error)}{then}" if error.filename else reason(error)
    what = f"{type(error).__name__}: {error}"
    return f"this is a bug of rmqctl: {what} (run `rmqctl --debug ...` and report what it shows)"
