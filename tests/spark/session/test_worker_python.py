"""The Python of workers on this host imports what the driver imports, and not the archive of PySpark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.spark.session.session import Target, session, worker_python
from tests.conftest import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = "/opt/spark/python/lib/pyspark.zip"
PROGRAM = "import os, pyspark, py4j; print(os.environ['PYTHONPATH'], pyspark.__file__, py4j.__file__)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    worker_python.cache_clear()
    yield folder
    worker_python.cache_clear()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ARCHIVE, []),
        (f"{ARCHIVE}:/opt/spark/python/lib/py4j-src.zip", ["/opt/spark/python/lib/py4j-src.zip"]),
        (f"/a:{ARCHIVE}:/b", ["/a", "/b"]),
        ("/a", ["/a"]),
        ("", []),
    ],
)
def test_the_archive_is_left_out(before: str, after: list[str], folder: Path) -> None:
    environ = os.environ | {"PYTHONPATH": before}
    said = subprocess.run([worker_python(), "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    (modules,) = folder.glob("*/modules")
    files = [modules / name / "__init__.py" for name in ("pyspark", "py4j")]
    assert said.stdout == f"{':'.join(map(str, (modules, *after)))} {files[0]} {files[1]}\n"


def test_where_nothing_can_be_executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that is mounted so."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert worker_python() == sys.executable


def test_pyspark_in_an_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__file__", f"{ARCHIVE}/pyspark/__init__.py")
    assert worker_python() == sys.executable
    assert list(folder.iterdir()) == []


@pytest.mark.spark
def test_a_worker(no_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session with a local master, unless the user has set a Python.

    In a second session, the JVM starts the Python that found the data source in the first.
    """
    unpacked = unpack("533-basic", tmp_path)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    def path(_: int) -> list[str]:
        return [entry for entry in sys.path if entry.endswith("pyspark.zip")]

    def archives(spark: SparkSession) -> list[str]:
        return spark.sparkContext.parallelize([1], 1).flatMap(path).collect()

    for _ in range(2):
        with session(Target("local[1]"), os.environ) as spark:
            assert archives(spark) == []
            assert spark.read.format("rocketmq").load(str(unpacked)).count() > 0
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with session(Target("local[1]"), os.environ) as spark:
        assert len(archives(spark)) == 1
