"""The Spark session of a job. The executors of the session can import rmqctl.

A job uses the existing session, or a session that rmqctl starts. rmqctl can start a session on a Spark Connect server,
on a cluster or on this host.
"""

from __future__ import annotations

import re
import sys
import tempfile  # noqa: TID251 -- in a folder that is given
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import ZipFile

import rmqctl
from rmqctl.errors import BadRequest
from rmqctl.scratch import temporary_folder
from rmqctl.spark.session.java import java_home
from rmqctl.spark.session.jvm_signals import ctrl_c_as_found, say_nothing_of_its_end, signals_held
from rmqctl.spark.session.spark_answer import check_answers
from rmqctl.spark.session.spark_error import one_line, spark_errors
from rmqctl.spark.session.worker_python import worker_python
from rmqctl.text import install_extra

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from pyspark.sql import SparkSession

APP_NAME = "rmqctl"
_MASTERS = ("spark://", "yarn", "k8s://", "local")
# Spark's own progress bar would appear between the lines of rmqctl; a command needs no web page
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# for Spark 4.1 and later: over TCP, the first and last messages between a task and its worker wait 40 ms for each
# other, as long as reading 256 MiB takes
_FAST = {"spark.python.unix.domain.socket.enabled": "true"}
LOOPBACK = "127.0.0.1"
# the JVM of a local master talks only to itself and to its Python workers, so no other host needs to reach the JVM
_LOCAL = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
# Python searches the current folder before its own modules: in a store's folder, a gzip.py of anybody would run
_SAFE_PATH = "PYTHONSAFEPATH"
# Failures reach rmqctl as exceptions, except that a cluster has no workers or loses its workers. PySpark sets the root
# logger to WARN, and prints this if the logger had another level. Spark replaces settings of a root logger without an
# appender by its own settings. A scheduler that is ended by a signal may refuse the last results ("statusUpdate").
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
appender.console.filter.end.type = RegexFilter
appender.console.filter.end.regex = Exception in statusUpdate
appender.console.filter.end.onMatch = deny
appender.console.filter.end.onMismatch = accept
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n%ex{0}
"""


class Target(NamedTuple):
    """The place where a job runs.

    `remote` is a Spark Connect server (sc://host). `master` is a Spark master (spark://host:7077, yarn, local[4]). If
    neither `remote` nor `master` is set, the job uses the existing session. If no session exists, the job uses the
    master of spark-submit. Without spark-submit, the job uses all cores of this host.
    """

    master: str | None = None
    remote: str | None = None


@contextmanager
def session(target: Target, environ: MutableMapping[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session.

    If this function starts the session, the session ends after the block. `environ` is the environment of this process,
    which Spark's launcher reads. Raises Unreadable if no Spark server answers. Raises BadRequest if there is no
    suitable Java, if the master is not valid, or if a package for Spark Connect is missing. Raises Unreadable if no
    folder can hold temporary files.
    """
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is not None and target == Target():
        yield there
        return
    if target.master and not target.master.startswith(_MASTERS):
        raise BadRequest(
            f"Spark does not know this master: {target.master}",
            hint="spark://HOST:7077, yarn, k8s://https://HOST:443, local[4]",
        )
    for url in filter(None, target):
        check_answers(url)
    temporary = temporary_folder(holds_code=True)
    with tempfile.TemporaryDirectory(prefix="rmqctl-spark-", dir=temporary) as folder:
        with (
            _left_as_found(
                environ, "JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_LOCAL_IP", "TMPDIR", _SAFE_PATH
            ),
            _files_of_pyspark_in(temporary, environ),
        ):
            spark = _begin(target, environ, Path(folder))
        try:
            yield spark
        finally:
            _end(spark)


@contextmanager
def _files_of_pyspark_in(folder: str, environ: MutableMapping[str, str]) -> Iterator[None]:
    """Let PySpark and the processes that it starts use `folder` for temporary files.

    They would take any TMPDIR, and the current folder where no other can be written.
    """
    before, tempfile.tempdir = tempfile.tempdir, folder
    environ["TMPDIR"] = folder
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _left_as_found(environ: MutableMapping[str, str], *names: str) -> Iterator[None]:
    before = {name: environ[name] for name in names if name in environ}
    try:
        yield
    finally:
        for name in names:
            environ.pop(name, None)
        environ.update(before)


def _begin(target: Target, environ: MutableMapping[str, str], folder: Path) -> SparkSession:
    with spark_errors(f"no Spark session at {target.remote or target.master or 'local[*]'}"), ctrl_c_as_found():
        spark = _remote(target.remote) if target.remote else _classic(target.master, environ, folder)
        send_package(spark, folder)
    return spark


def _end(spark: SparkSession) -> None:
    """End the session.

    If a signal has ended the JVM, no error or warning is shown.
    """
    from py4j.protocol import Py4JError

    with warnings.catch_warnings(action="ignore"), suppress(Py4JError, OSError):
        spark.stop()


def end_jvm() -> None:
    """End the JVM that PySpark has started in this process, if there is one.

    Python waits at its end for all threads. A thread may wait for a job that Spark has forgotten, because Spark was
    stopped at the moment when the thread began the job. When the JVM ends, the thread ends, too.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM ends at the end of its input


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel all running jobs of the session.

    If a signal has ended the JVM, no error is shown.
    """
    from py4j.protocol import Py4JError
    from pyspark.sql.utils import is_remote

    with suppress(Py4JError, OSError):
        if is_remote():
            spark.interruptAll()
        else:
            spark.sparkContext.cancelAllJobs()


def _remote(url: str) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise BadRequest(
            f"Spark Connect needs another package: {one_line(error)}", hint=install_extra("connect")
        ) from error


def _classic(master: str | None, environ: MutableMapping[str, str], folder: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = SparkConf().setAppName(APP_NAME).setExecutorEnv(_SAFE_PATH, "1")
    environ[_SAFE_PATH] = "1"
    is_ours = "SPARK_ENV_LOADED" not in environ
    if is_ours:  # otherwise, spark-submit has found a Java, a Python and a master
        environ["JAVA_HOME"] = str(java_home(environ, folder / "java"))
        environ.setdefault("SPARK_HOME", str(_spark_home()))
        settings.setMaster("local[*]").set("spark.driver.extraJavaOptions", _java_options(folder))
        settings.set("spark.sql.warehouse.dir", (folder / "warehouse").as_uri())  # not in the current folder
    if master:
        settings.setMaster(master)
    if is_ours:
        is_local = _is_local(settings.get("spark.master"))
        if "PYSPARK_PYTHON" not in environ:
            environ["PYSPARK_PYTHON"] = worker_python() if is_local else sys.executable
        if is_local:
            environ["SPARK_LOCAL_IP"] = LOOPBACK
            settings.setAll(list(_LOCAL.items()))
    settings.setAll(list((_QUIET | _FAST).items()))
    with signals_held():
        SparkContext._ensure_initialized(conf=settings)  # only starts the JVM
    spark = SparkSession.builder.config(conf=settings).getOrCreate()
    say_nothing_of_its_end(spark)
    _hear_no_workers(spark)
    return spark


def _hear_no_workers(spark: SparkSession) -> None:
    """Discard the output of the Python workers of this JVM.

    Spark may close the connection to a worker at the end of a task, of a plan or of the session. A worker that is still
    sending data prints a traceback, although no error has occurred. Real errors of a worker reach rmqctl as exceptions.

    Spark's own log is still shown, because Spark opened stderr for the log before this call. The JVM runs nothing
    except rmqctl, so no output of another program is lost.
    """
    java: Any = spark.sparkContext._jvm
    java.java.lang.System.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))


def send_package(spark: SparkSession, folder: Path) -> None:
    """Send rmqctl's modules to the executors, as a zip file made in `folder`.

    If the master is local, nothing is sent. Numba, numpy and the other libraries must be installed on the executors.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        spark.addArtifacts(str(_package(folder)), pyfile=True)
    elif not _is_local(spark.sparkContext.master):
        spark.sparkContext.addPyFile(str(_package(folder)))


def _spark_home() -> Path:
    """Return the folder of the Spark installation that belongs to PySpark.

    If SPARK_HOME is not set, PySpark may run programs from the parent of the current folder.
    """
    import pyspark

    home = Path(pyspark.__file__).absolute().parent
    candidates = (home / "spark-distribution", home, home.parent.parent)  # a download by pip; the wheel; a checkout
    return next((folder for folder in candidates if (folder / "bin" / "spark-submit").is_file()), home)


def _is_local(master: str | None) -> bool:
    """Return whether a master runs all tasks in the JVM of this process.

    The result is True, for example, for `local` and `local[4]`. The result is False, for example, for
    `local-cluster[2,1,1024]`, which starts other processes.
    """
    return f"{master}[".startswith("local[")


def _java_options(folder: Path) -> str:
    """Return the JVM options for the folder of temporary files, and for the log.

    Only Spark's task scheduler logs warnings and errors. Failures outside the task scheduler reach rmqctl as
    exceptions. The settings of the log are written to a file in `folder`. Temporary files are beside `folder`, because
    the JVM may outlive it.
    """
    path = folder / "log4j2.properties"
    path.write_text(_LOGGING, encoding="utf-8")
    options = f"-Dlog4j2.configurationFile={path.as_uri()}", f"-Djava.io.tmpdir={folder.parent}"
    return " ".join('"' + re.sub(r'(["\\])', r"\\\1", option) + '"' for option in options)


def _package(folder: Path) -> Path:
    """Write rmqctl to a zip file in `folder`, and return the file's path."""
    root = Path(rmqctl.__file__).parent
    archive = folder / "rmqctl.zip"
    with ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".json"):
                file.write(path, Path(root.name) / path.relative_to(root))
    return archive
