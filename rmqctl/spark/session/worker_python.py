"""The Python that runs Spark's workers on this host.

Spark puts its archive of PySpark before all other modules of a worker. Modules in an archive are not compiled, so each
new kind of worker would compile PySpark first, for 2 s. Each task would also read the archive's list of files again,
for 13 ms (Spark 4.3, Python 3.11). The installed package of the driver has the same modules, and they are compiled.
"""

from __future__ import annotations

import atexit
import shlex
import shutil
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory  # noqa: TID251 -- in a folder that is given

from rmqctl.scratch import temporary_folder

_FOLDERS = ExitStack()
atexit.register(_FOLDERS.close)
_SCRIPT = """\
#!/bin/sh
others=$(printf %s "$PYTHONPATH" | sed 's#[^:]*/python/lib/pyspark[.]zip:*##g')
export PYTHONPATH={modules}"${{others:+:$others}}"
exec {python} -P "$@"
"""


@cache
def worker_python() -> str:
    """Return the Python for workers on this host.

    The result is a script that starts the driver's Python without the archive of PySpark. If the driver's PySpark is in
    an archive, or if temporary files cannot be executed, the result is the driver's Python. The script exists until
    this process ends, because the JVM of later sessions remembers it.
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
