"""A Spark session: one that is there, Spark Connect's, a cluster's, spark-submit's, or `local[*]`; its executors have rmqctl."""

from __future__ import annotations

import socket
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from zipfile import ZipFile

import rmqctl
from rmqctl.errors import Unreadable
from rmqctl.jobs.java import java_home
from rmqctl.jobs.spark_error import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from pyspark.sql import SparkSession

APP_NAME = "rmqctl"
CONNECT_SECONDS = 10
_PORTS = {"spark": 7077, "sc": 15002}
# a progress bar of Spark's own would go between our lines; a command needs no web page
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# what goes wrong reaches us as an exception, but for a cluster without workers, or one that loses them; PySpark takes the root logger
# to WARN, and says so where it was not there; Spark puts its own settings in place of ones without an appender there
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n%ex{0}
"""


class Target(NamedTuple):
    """Where a job runs: `remote` (sc://host, Spark Connect), `master` (spark://host:7077, yarn, local[4]); neither: here, on all cores."""

    master: str | None = None
    remote: str | None = None


@contextmanager
def session(target: Target, environ: MutableMapping[str, str]) -> Iterator[SparkSession]:
    """A session, ended behind the block where it was begun here; `environ` is the process's own, into which Spark's launcher looks.

    Raises Unreadable where nobody answers, BadRequest without a Java.
    """
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is not None and target == Target():
        yield there
        return
    for url in filter(None, target):
        _check_answers(url)
    java_home_before = environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="rmqctl-spark-") as folder:
        spark = _begin(target, environ, Path(folder))
        try:
            yield spark
        finally:
            spark.stop()
            if java_home_before is None:
                environ.pop("JAVA_HOME", None)
            else:
                environ["JAVA_HOME"] = java_home_before


def _begin(target: Target, environ: MutableMapping[str, str], folder: Path) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(APP_NAME)
    try:
        if target.remote:
            spark = builder.remote(target.remote).getOrCreate()
            spark.addArtifacts(str(_package(folder)), pyfile=True)
            return spark
        if "SPARK_ENV_LOADED" not in environ:  # spark-submit has found a Java, a Python and a master
            environ["JAVA_HOME"] = str(java_home(environ, folder / "java"))
            environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = builder.master(target.master or "local[*]").config("spark.driver.extraJavaOptions", _logging(folder))
        for name, value in _QUIET.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise Unreadable(f"no Spark session: {one_line(error)}", path=target.remote or target.master or "") from error
    if not (spark.sparkContext.master or "").startswith("local"):
        spark.sparkContext.addPyFile(str(_package(folder)))
    return spark


def _logging(folder: Path) -> str:
    """The option of a JVM that logs errors alone."""
    path = folder / "log4j2.properties"
    path.write_text(_LOGGING, encoding="utf-8")
    return f"-Dlog4j2.configurationFile=file:{path}"


def _check_answers(url: str) -> None:
    """Spark itself tries for minutes where nobody listens."""
    for one in url.split(",") if urlsplit(url).scheme in _PORTS else []:
        place = urlsplit(one if "//" in one else f"spark://{one}")
        try:
            with socket.create_connection((place.hostname or "", place.port or _PORTS[place.scheme]), timeout=CONNECT_SECONDS):
                return
        except OSError as error:
            why = error.strerror or str(error)
    if urlsplit(url).scheme in _PORTS:
        raise Unreadable(f"no Spark answers there: {why}", path=url)


def _package(folder: Path) -> Path:
    """A zip of rmqctl, which executors import; numba, numpy and the like must be installed there."""
    root = Path(rmqctl.__file__).parent
    archive = folder / "rmqctl.zip"
    with ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".json"):
                file.write(path, Path(root.name) / path.relative_to(root))
    return archive
