"""What is wrong with where a job runs, or with what it is asked of, is one clear line and its exit code; nothing waits
for minutes.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Result, Rmqctl, unpack
from tests.support.spark_process import LOOPBACK, ended, started_rmqctl
from tests.support.spark_stand_ins import java, listener

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def is_one_line(result: Result, code: int, pattern: str) -> None:
    """Nothing on stdout, and one line on stderr that has `pattern`."""
    assert (result.code, result.out) == (code, "")
    assert re.fullmatch(rf"rmqctl: [^\n]*{pattern}[^\n]*\n", result.err), result.err


def without_privileges() -> None:
    """Root is denied as others are, from the next program on. Others may not ask for that, and need not."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_no_such_path(tmp_path: Path, rmqctl: Rmqctl) -> None:
    is_one_line(rmqctl("job", "verify", tmp_path / "none"), 10, "none: ")


@pytest.mark.parametrize("inner", ["", "commitlog"])
def test_a_path_without_permission(inner: str, tmp_path: Path) -> None:
    root = unpack("533-basic", tmp_path)
    (root / inner).chmod(0)
    command = [sys.executable, "-m", "rmqctl", "job", "verify", str(root)]
    try:
        found = subprocess.run(
            command, preexec_fn=without_privileges, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        (root / inner).chmod(0o700)
    is_one_line(Result(found.returncode, found.stdout, found.stderr), 4, "Permission denied")


def test_a_path_below_a_file(tmp_path: Path, rmqctl: Rmqctl) -> None:
    (tmp_path / "file").write_bytes(b"")
    is_one_line(rmqctl("job", "verify", tmp_path / "file" / "store"), 10, "file/store: ")


def test_no_pyspark(tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    is_one_line(
        rmqctl("job", "verify", unpack("533-basic", tmp_path)),
        2,
        r"PySpark is not installed \(install the extra `spark`: `\S+ -m pip install 'rmqctl\[spark\]'`\)",
    )


@pytest.mark.spark
@pytest.mark.parametrize(("option", "scheme"), [("--master", "spark"), ("--remote", "sc")])
def test_a_place_that_never_answers(
    option: str, scheme: str, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.spark.session.session.CONNECT_SECONDS", 0.1)
    with listener(None) as place:
        found = rmqctl("job", "verify", unpack("533-basic", tmp_path), option, f"{scheme}://{place}")
    is_one_line(found, 4, "no Spark answers there: not a word within 0.1 s")


@pytest.mark.spark
def test_an_old_java(no_session: None, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "java", "11.0.21")))
    is_one_line(
        rmqctl("job", "verify", unpack("533-basic", tmp_path)), 2, r"JAVA_HOME has Java 11 \(Spark needs 17 or later"
    )


@pytest.mark.spark
def test_a_master_that_nobody_knows(tmp_path: Path, rmqctl: Rmqctl) -> None:
    is_one_line(
        rmqctl("job", "verify", unpack("533-basic", tmp_path), "--master", "cloud"),
        2,
        r"Spark does not know this master: cloud \(spark://",
    )


@pytest.mark.spark
def test_executors_without_a_python(
    no_session: None, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    found = rmqctl("job", "verify", unpack("533-basic", tmp_path), "--master", "local[1]")
    is_one_line(found, 4, r"No such file or directory \([^\n]*set PYSPARK_PYTHON")


@pytest.mark.spark
def test_executors_without_our_libraries(tmp_path: Path) -> None:
    stub, settings = tmp_path / "stub", tmp_path / "conf"
    stub.mkdir()
    settings.mkdir()
    (stub / "llvmlite.py").write_text("raise ModuleNotFoundError(\"No module named 'llvmlite'\", name='llvmlite')\n")
    (settings / "spark-defaults.conf").write_text(f"spark.executorEnv.PYTHONPATH {stub}\n")
    environ = {**os.environ, **LOOPBACK, "SPARK_CONF_DIR": str(settings)}
    found = ended(started_rmqctl(("job", "verify", unpack("533-basic", tmp_path), "--master", "local[1]"), environ))
    is_one_line(found, 4, r"No module named 'llvmlite' \([^\n]*pip install \.")
