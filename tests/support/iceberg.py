"""Iceberg's runtime, and the newest Spark that it has a build for: its build for 4.1 does not load in 4.3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.real_store.java_build import MAVEN_TIMEOUT, cache_home, made, run, tool
from tests.support.spark_process import LOOPBACK, QUICK_JVM

VERSION, SPARK = "1.12.0", "4.1"
ARTIFACT = f"iceberg-spark-runtime-{SPARK}_2.13"


def iceberg_jar() -> Path:
    """The jar, resolved with Maven, kept where the real RocketMQ's jars are kept. Raises RuntimeError."""

    def resolve(folder: Path) -> None:
        goal = [f"-Dartifact=org.apache.iceberg:{ARTIFACT}:{VERSION}", f"-DoutputDirectory={folder}"]
        run("resolving Iceberg with Maven", [tool("mvn"), "-B", "-q", "dependency:copy", *goal], MAVEN_TIMEOUT)

    return made(cache_home() / "iceberg" / f"{ARTIFACT}-{VERSION}", resolve) / f"{ARTIFACT}-{VERSION}.jar"


def pyspark() -> Path:
    """A folder for PYTHONPATH with this version of PySpark, kept beside the jars."""

    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), f"pyspark=={SPARK}.*"]
        subprocess.run(command, check=True)

    return made(cache_home() / "iceberg" / f"pyspark-{SPARK}", install)


def environ_of_a_lake(folder: Path) -> dict[str, str]:
    """The environment of a driver of this PySpark, whose catalog `lake` keeps its tables in `folder`/warehouse.

    Executors of `local-cluster` keep their files in SPARK_HOME, so this is below `folder`, too.
    """
    packages, home = pyspark(), folder / "spark"
    home.mkdir()
    for path in (packages / "pyspark").iterdir():
        (home / path.name).symlink_to(path)
    settings = {
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.jars": iceberg_jar(),
        "spark.local.dir": folder / "scratch",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": folder / "warehouse",
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    paths = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    places = {"SPARK_CONF_DIR": str(folder), "SPARK_HOME": str(home), "PYTHONPATH": paths}
    return {**os.environ, **LOOPBACK, **places}
