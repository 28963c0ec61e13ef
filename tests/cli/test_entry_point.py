"""What happens before a command begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_an_interrupt_while_modules_are_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    """It also comes in a weakref's callback, where Python would drop an exception and go on."""
    (tmp_path / "click.py").write_text(
        "import os, signal, weakref\n"
        "class Lock: pass\n"
        "lock = Lock()\n"
        "kept = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "del lock\n"
        "raise RuntimeError\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "rmqctl", "info", tmp_path],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "rmqctl: interrupted\n")
