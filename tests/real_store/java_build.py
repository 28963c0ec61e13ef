"""The real RocketMQ's jars and our programs around it, resolved with Maven, compiled with javac, kept in a cache
folder.

The cache is `$RMQCTL_REAL_STORE_HOME`, or `rmqctl-real-store` in `$XDG_CACHE_HOME` (`~/.cache`). A VERSION's folder
has lib-HASH (RocketMQ's jars; the hash is of pom.xml), jar-HASH (our programs; of pom.xml and the Java sources) and
archive-HASH (classes as a JVM maps them; of the same). Each is made under another name and renamed when it is complete,
so its existence says that it can be used; of two runs at once the later one waits, and takes the earlier one's. Nothing
is ever removed; the whole cache may be, at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

POM = Path(__file__).parent / "pom.xml"
POM_OF_STORE = Path(__file__).parent / "store.pom.xml"
JAVA_OF_STORE = ("Restarts", "RealStore", "QueueRange", "Program", "Json")
SOURCES = Path(__file__).parent / "java"
SOURCES_OF_5 = Path(__file__).parent / "java5"
ARTIFACTS = {"4.1.0": "4.1.0-incubating"}
MAVEN_TIMEOUT = 900.0
JAVAC_TIMEOUT = 180.0
LOG_LINES_SHOWN = 20
ARCHIVE = "classes.jsa"


def prepare(version: str) -> str:
    """The class path for a version, after whatever is missing was resolved and compiled. Raises RuntimeError."""
    return _built(cache_home() / version, POM, version, _sources(version))


def _sources(version: str) -> list[Path]:
    newer = sorted(SOURCES_OF_5.glob("*.java")) if version.startswith("5.") else []
    return sorted(SOURCES.glob("*.java")) + newer


def archive(version: str, train: Callable[[Path], None]) -> str:
    """The JVM's option to take classes from an archive: to load them takes a third of a short life.

    `train` makes the archive at the path that it is given. A JVM that has no use for it, of another JDK, ignores it.
    """
    prepare(version)
    folder = cache_home() / version / f"archive-{_hash([POM, *_sources(version)])}"
    return f"-XX:SharedArchiveFile={made(folder, lambda making: train(making / ARCHIVE)) / ARCHIVE}"


def prepare_store(version: str) -> str:
    """As `prepare`, with the jars of the store alone, and the programs of JAVA_OF_STORE: old versions lack what others
    use.
    """
    return _built(cache_home() / version, POM_OF_STORE, version, [SOURCES / f"{name}.java" for name in JAVA_OF_STORE])


def _built(home: Path, pom: Path, version: str, sources: list[Path]) -> str:
    lib = made(home / f"lib-{_hash([pom])}", lambda folder: _resolve(pom, version, folder))
    classes = made(home / f"jar-{_hash([pom, *sources])}", lambda folder: _compile(sources, lib, folder))
    return f"{classes}/*{os.pathsep}{lib}/*"


def cache_home() -> Path:
    """The folder that has a folder for each version."""
    if own := os.environ.get("RMQCTL_REAL_STORE_HOME"):
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "rmqctl-real-store"


def tool(name: str) -> str:
    """The path of mvn, javac or java. Raises RuntimeError when there is none."""
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"there is no {name} on the PATH: install a JDK 17 and Maven")
    return found


def last_lines(log: str) -> str:
    """The end of a log, where the reason of a failure stands."""
    return "\n".join(log.splitlines()[-LOG_LINES_SHOWN:])


def made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, which `make` fills under another name when there is none yet."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent), tempfile.TemporaryDirectory(prefix="making-", dir=folder.parent) as making:
        if folder.is_dir():
            return folder
        complete = Path(making) / folder.name
        complete.mkdir()
        make(complete)
        try:
            complete.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another run was first
                raise
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Have others that make something in the folder wait."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _resolve(pom: Path, version: str, folder: Path) -> None:
    goal = [
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
        "-DincludeScope=runtime",
        f"-Drocketmq={ARTIFACTS.get(version, version)}",
    ]
    run("resolving RocketMQ with Maven", [tool("mvn"), "-B", "-q", "-f", str(pom), *goal], MAVEN_TIMEOUT)


def _compile(sources: Iterable[Path], lib: Path, folder: Path) -> None:
    """A jar: a JVM archives no classes of folders."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-classes-") as classes:
        options = ["-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", f"{lib}/*", "-d", classes]
        run("compiling the Java programs", [tool("javac"), *options, *map(str, sources)], JAVAC_TIMEOUT)
        packing = ["--create", "--file", str(folder / "programs.jar"), "-C", classes, "."]
        run("packing the Java programs", [tool("jar"), *packing], JAVAC_TIMEOUT)


def run(what: str, command: list[str], timeout: float) -> None:
    """Run a program to its end. Raises RuntimeError with the end of its log if it fails."""
    try:
        subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=True, text=True
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{what} failed:\n{last_lines(error.stdout)}") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{what} took longer than {timeout:.0f} s") from error


def _hash(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:16]
