"""Iceberg's runtime for a version of Spark, resolved with Maven."""

from __future__ import annotations

from pathlib import Path

from tests.real_store.java_build import MAVEN_TIMEOUT, cache_home, made, run, tool

VERSION = "1.12.0"
OF_SPARK = ("4.0", "4.1")  # Iceberg has no build for later versions yet, and that for 4.1 does not load in 4.3


def iceberg_jar(spark: str) -> Path:
    """The jar for a version of Spark such as 4.1, kept where the real RocketMQ's jars are kept. Raises RuntimeError."""
    artifact = f"iceberg-spark-runtime-{spark}_2.13"

    def resolve(folder: Path) -> None:
        goal = [f"-Dartifact=org.apache.iceberg:{artifact}:{VERSION}", f"-DoutputDirectory={folder}"]
        run("resolving Iceberg with Maven", [tool("mvn"), "-B", "-q", "dependency:copy", *goal], MAVEN_TIMEOUT)

    return made(cache_home() / "iceberg" / f"{artifact}-{VERSION}", resolve) / f"{artifact}-{VERSION}.jar"
