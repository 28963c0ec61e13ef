"""The tests themselves, started as a shell starts a background job of a script: with SIGINT ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TEST_SECONDS

IGNORING = ("/bin/sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh")

SIGNAL_TESTS = (
    "cli/test_contract.py::test_ctrl_c_is_130",
    "cli/verbs/change/test_undo.py::test_a_signal_before_it_begins_ends_it",
)


@pytest.mark.slow
def test_signals_reach_what_the_tests_start() -> None:
    tests = [str(Path(__file__).parent / name) for name in SIGNAL_TESTS]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests]
    started = subprocess.run([*IGNORING, *command], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stdout


def test_every_test_has_a_time_limit(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args == (TEST_SECONDS,)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
