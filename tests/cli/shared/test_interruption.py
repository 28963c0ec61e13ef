import subprocess
import sys

import pytest

# each run ends with 130 by the first signal, although Python drops its KeyboardInterrupt
DROPPED = """
import os, signal, sys, time
import rmqctl.cli.main as cli
from rmqctl.cli.shared.interruption import ChangeInterruption, Interruption

class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

def inspect():
    Dropping()
    time.sleep(60)

def append():
    with Interruption() as interruption:
        with interruption.waiting():
            Dropping()
        assert interruption.noted
        time.sleep(0.5)
        print("closed")
    raise KeyboardInterrupt

def wait_for_line():
    with Interruption() as interruption:
        with interruption.waiting():
            Dropping()
            time.sleep(60)
        assert interruption.noted
        print("closed")
    raise KeyboardInterrupt

def plan():
    with ChangeInterruption():
        Dropping()
        time.sleep(60)

def change():
    with ChangeInterruption() as interruption:
        Dropping()
        try:
            interruption.commit()
        finally:
            time.sleep(0.5)
            print("closed")

def run(arguments):
    try:
        globals()[sys.argv[1]]()
    except KeyboardInterrupt:
        return 130
    return 0

cli.run = run
cli.main()
"""


@pytest.mark.parametrize(
    ("work", "out", "remarks"),
    [
        ("inspect", "", ""),
        ("append", "closed\n", ""),
        ("wait_for_line", "closed\n", ""),
        ("plan", "", "nothing was changed\n"),
        ("change", "closed\n", "nothing was changed\n"),
    ],
)
def test_a_signal_during_a_destructor_ends_the_command_as_usual(work: str, out: str, remarks: str) -> None:
    command = [sys.executable, "-c", DROPPED, work]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, out, remarks)
