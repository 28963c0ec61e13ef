from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_modules_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    for name in ("click", "gzip", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('trapped')\n")
    environ = os.environ | {"PYTHONPATH": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "rmqctl", "--version"], cwd=tmp_path, env=environ, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
