from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# a module called yaml stands for PyYAML, which is no dependency of ours, but is on many hosts
YAML = "def safe_load(file):\n    return {'disable_jit': 1}\n"
ASKS = (
    "from rmqctl.kernels.safe_numba import config; config.reload_config(); import yaml; print(config.DISABLE_JIT, "
    "yaml.__name__)"
)


def test_a_file_in_the_current_folder_sets_nothing(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\n")
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "yaml.py").write_text(YAML)
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "modules")}
    result = subprocess.run(
        [sys.executable, "-P", "-c", ASKS], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("0 yaml\n", "")
