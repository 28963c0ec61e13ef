"""Command lines of rmqctl, run in this process: what they left, and whether they kept to the contract of the command
line.
"""

from __future__ import annotations

import io
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import FrameType
from unittest.mock import patch

import click

from rmqctl.cli.main import rmqctl, run
from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import ExitCode
from tests.conftest import Result, signals_given_back

SECONDS_A_COMMAND = 180  # the first of all may compile kernels


class TooLong(BaseException):
    """A command did not end in time; nothing of rmqctl catches it."""


def call(*arguments: object) -> Result:
    """Run a command line; TooLong after SECONDS_A_COMMAND."""
    words = [str(argument) for argument in arguments]
    out, err = _stream(), _stream()
    with signals_given_back(), _time_limit(), redirect_stdout(out), redirect_stderr(err), _no_syncs():
        code = run(words)
    return Result(code, _text(out), _text(err))


def _stream() -> io.TextIOWrapper:
    """Verbs write bytes to stdout's buffer, too."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@contextmanager
def _no_syncs() -> Iterator[None]:
    """Nobody pulls the plug here; waiting for the disk would be most of the time."""
    with patch("os.fsync", _nothing), patch("os.fdatasync", _nothing):
        yield


def _nothing(_: int) -> None:
    pass


def breach(result: Result, *arguments: object) -> str | None:
    """What of the contract a command broke: an exit code that is not in its help, a bug, a traceback; None: nothing."""
    allowed = {int(code) for code in exit_codes(str(arguments[0]))} - {
        ExitCode.BUG,
        ExitCode.INTERRUPTED,
        ExitCode.PIPE_CLOSED,
    }
    if result.code in allowed and "Traceback" not in result.err:
        return None
    return f"exit {result.code}: {result.err.strip()[-400:]}{_where(*arguments) if result.code == ExitCode.BUG else ''}"


def exit_codes(verb: str) -> tuple[ExitCode, ...]:
    """The exit codes in a verb's help."""
    command = rmqctl.get_command(click.Context(rmqctl), verb)
    if isinstance(command, Verb):
        return command.exit_codes
    assert isinstance(command, click.Group)
    return tuple({code for name in command.commands for code in _codes_of(command.commands[name])})


def _codes_of(command: click.Command) -> tuple[ExitCode, ...]:
    return command.exit_codes if isinstance(command, Verb) else ()


def _where(*arguments: object) -> str:
    """The end of the traceback of a command line that ends with a bug."""
    try:
        with redirect_stdout(_stream()), redirect_stderr(_stream()):
            run(["--debug", *(str(argument) for argument in arguments)])
    except Exception:  # noqa: BLE001 -- whatever it is, that is what is asked for
        return "\n" + "".join(traceback.format_exc().splitlines(keepends=True)[-12:])
    return ""


@contextmanager
def _time_limit() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS_A_COMMAND)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TooLong
