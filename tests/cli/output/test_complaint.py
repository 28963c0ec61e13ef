"""Exit statuses of what ends a command; that `run` and the metrics of `clean` say the same is in test_clean.py."""

from __future__ import annotations

import click
import pytest

from rmqctl.cli.output.complaint import exit_status
from rmqctl.errors import ExitCode, NotAStore, StoreInUse


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreInUse("in use"), ExitCode.IN_USE),
        (NotAStore("no store"), ExitCode.NOT_A_STORE),
        (click.BadParameter("bad"), ExitCode.USAGE),
        (click.Abort(), ExitCode.INTERRUPTED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (BrokenPipeError(), ExitCode.PIPE_CLOSED),
        (PermissionError(13, "denied"), ExitCode.PARTIAL),
        (ValueError("a bug"), ExitCode.BUG),
    ],
)
def test_each_has_its_own(error: BaseException, status: ExitCode) -> None:
    assert exit_status(error) == status
