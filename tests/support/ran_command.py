"""Commands that are run in this process, also while the system fails."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from rmqctl.cli.main import run
from tests.conftest import Result
from tests.support.faulty_system import FaultySystem, open_descriptors


def ran(*arguments: object) -> Result:
    """A command in this process; files that it was reading are closed, as its end does it."""
    before = open_descriptors()
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = run([str(argument) for argument in arguments])
    for descriptor in open_descriptors() - before:
        os.close(descriptor)
    assert "Traceback" not in err.getvalue()
    return Result(code, out.getvalue(), err.getvalue().strip())


def failed(system: FaultySystem, do: Callable[[Path], Result], root: Path) -> Result:
    """What a command says of a system that fails."""
    with system:
        return do(root)
