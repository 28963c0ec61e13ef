"""The Python that runs Spark's workers on this host.

Spark puts its archive of PySpark before all other modules of a worker. Modules in an archive are not compiled, so each
new kind of worker would compile PySpark first, for 2 s. Each task would also read the archive's list of files again,
for 13 ms (Spark 4.3, Python 3.11). The installed package of the driver has the same modules, and they are compiled.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
others=$(printf %s "$PYTHONPATH" | sed 's#[^:]*/python/lib/pyspark[.]zip:*##g')
export PYTHONPATH={modules}"${{others:+:$others}}"
exec {python} "$@"
"""


def worker_python(folder: Path) -> str:
    """Return the Python for workers on this host.

    The result is a script in `folder` that starts the driver's Python without the archive of PySpark. If the driver's
    PySpark is in an archive, or if files in `folder` cannot be executed, the result is the driver's Python.
    """
    import py4j
    import pyspark

    packages = [Path(str(package.__file__)).absolute().parent for package in (pyspark, py4j)]
    if not all(package.is_dir() for package in packages):
        return sys.executable
    modules, script = folder / "modules", folder / "python"
    modules.mkdir()
    for package in packages:
        (modules / package.name).symlink_to(package)
    script.write_text(
        _SCRIPT.format(modules=shlex.quote(str(modules)), python=shlex.quote(sys.executable)), encoding="utf-8"
    )
    script.chmod(0o700)
    return shutil.which(str(script)) or sys.executable  # None, for example, on a file system without executables
