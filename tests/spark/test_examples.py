"""What is in examples/spark runs: the notebook's cells, Connect's, and spark-submit's line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Result, Rmqctl, unpack
from tests.spark.conftest import without_seconds
from tests.support.connect_server import ConnectServer
from tests.support.spark_process import LOOPBACK, ended

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "spark"


def run(*command: object) -> Result:
    """A program with Spark's commands on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    words = [str(word) for word in command]
    environ = {**os.environ, **LOOPBACK, "PATH": path}
    return ended(subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def test_notebook(tmp_path: Path) -> None:
    found = run(sys.executable, EXAMPLES / "notebook.py", unpack("497-basic", tmp_path))
    assert found.code == 0, found.err
    assert "|message|" in found.out.replace(" ", "")
    assert "messagesPerSecond" in found.out


def test_connect(connect: ConnectServer, tmp_path: Path) -> None:
    found = run(sys.executable, EXAMPLES / "connect.py", connect.url, unpack("497-basic", tmp_path))
    assert found.code == 0, found.err
    assert "messagesPerSecond" in found.out


def test_spark_submit(tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = unpack("497-basic", tmp_path)
    here = rmqctl("verify", root, "-o", "json")
    found = run(EXAMPLES / "submit.sh", "local[2]", root)
    assert found.code == here.code == 0, found.err
    document, _ = json.JSONDecoder().raw_decode(found.out)  # spark-submit puts its program's stderr there, too
    assert without_seconds(document) == without_seconds(here.document())
