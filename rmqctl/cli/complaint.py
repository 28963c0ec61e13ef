"""What ended a command, or one store of several: one line on stderr, and an exit code."""

from __future__ import annotations

import os
import sys

from rmqctl.cli.printable import printable
from rmqctl.errors import ExitCode, RmqctlError


def complain(what: str, code: ExitCode) -> int:
    """The line; gives the code."""
    try:
        print(f"rmqctl: {printable(what)}", file=sys.stderr)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return int(code)


def complain_of(error: RmqctlError | OSError) -> int:
    """The same of what a store, or the system, refused."""
    if isinstance(error, RmqctlError):
        return complain(str(error), error.exit_code)
    where = f"{error.filename}: " if error.filename else ""
    return complain(f"{where}{error.strerror or error}", ExitCode.PARTIAL)
