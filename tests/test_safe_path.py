"""No Python file of the current folder, which may be a store, is run by rmqctl or by a process that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.conftest import unpack

TRAP = "import os\nopen(os.environ['TRAPPED'], 'a').write(__name__ + ' ')\n"
# imported at the start of each Python, from wherever PYTHONPATH leads
STARTS = "import os, sys\nopen(os.environ['STARTED'], 'a').write(f'{sys.flags.safe_path} {sys.orig_argv}\\n')\n"
INSTALLED = {name for name in packages_distributions() if name.isidentifier()}


def loaded(code: str) -> frozenset[str]:
    """The modules that a Python prints."""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(ended.stdout.split())


# what `python -m` imports from the current folder before rmqctl can do anything: only `python -P -m rmqctl` is safe
OF_MODULE = loaded("import runpy, pkgutil, sys; print('rmqctl', *sys.modules)")
# and what the .pth files of an environment do, such as that of setuptools
AT_START = loaded("import sys; print(*sys.modules)")
SCRIPT = f"#!{sys.executable}\nfrom rmqctl.__main__ import start\nif __name__ == '__main__':\n    start()\n"  # as pip's
COMMANDS = {
    "script": ["../outside/rmqctl"],
    "module": [sys.executable, "-m", "rmqctl"],
    "safe module": [sys.executable, "-P", "-m", "rmqctl"],
}


class Trapped:
    """A store as the current folder, with a trap in the name of every module that is not in `but_not`."""

    def __init__(self, folder: Path, *, but_not: frozenset[str] = frozenset()) -> None:
        self.store = unpack("497-basic", folder)
        self._trapped, self._started, outside = folder / "trapped", folder / "started", folder / "outside"
        outside.mkdir()
        (outside / "sitecustomize.py").write_text(STARTS)
        (outside / "rmqctl").write_text(SCRIPT)
        (outside / "rmqctl").chmod(0o755)
        names = {*sys.stdlib_module_names, *INSTALLED, "pyspark_trap", "usercustomize"} - but_not
        for name in names:
            (self.store / f"{name}.py").write_text(TRAP)
        if "rmqctl" in names:
            (self.store / "rmqctl.py").rename(self.store / "rmqctl_.py")
            (self.store / "rmqctl").mkdir()
            for name in ("__init__", "__main__"):
                (self.store / "rmqctl" / f"{name}.py").write_text(TRAP)
        for name in ("spark-defaults.conf", "log4j2.properties", "log4j2.xml", ".hotspotrc", "trap.pth"):
            (self.store / name).write_text("import trap\n")
        self._environ = os.environ | {"TRAPPED": str(self._trapped), "STARTED": str(self._started)}
        self._environ["PYTHONPATH"] = str(outside)
        self._there = sorted(self.store.rglob("*"))

    def run(self, *command: str, path_entry: str | None = None) -> list[str]:
        """Run a command in the store; the Pythons that ran, each with whether its path was safe."""
        paths = self._environ["PYTHONPATH"]
        environ = self._environ | {"PYTHONPATH": paths if path_entry is None else f"{paths}:{path_entry}"}
        ended = subprocess.run(command, cwd=self.store, env=environ, capture_output=True, text=True, check=False)
        trapped = self._trapped.read_text() if self._trapped.exists() else ""
        assert (ended.returncode, trapped) == (0, ""), ended.stderr
        assert sorted(self.store.rglob("*")) == self._there
        return self._started.read_text().splitlines()


@pytest.mark.parametrize("how", COMMANDS)
def test_a_verb(how: str, tmp_path: Path) -> None:
    trapped = Trapped(tmp_path, but_not=OF_MODULE if how == "module" else frozenset())
    assert len(trapped.run(*COMMANDS[how], "verify", ".")) == 1


def test_a_relative_entry_of_pythonpath(tmp_path: Path) -> None:
    """What Python and its script import before rmqctl does is out of its reach."""
    trapped = Trapped(tmp_path, but_not=AT_START | {*sys.stdlib_module_names, "rmqctl", "usercustomize"})
    for entry in ("", "."):
        trapped.run(*COMMANDS["script"], "verify", ".", path_entry=entry)


def test_the_processes_that_compile(tmp_path: Path) -> None:
    """They only load what the tests' own kernels left in the cache."""
    for how in ("script", "module"):
        (tmp_path / how).mkdir()
        trapped = Trapped(tmp_path / how, but_not=OF_MODULE if how == "module" else frozenset())
        _, *children = trapped.run(*COMMANDS[how], "warm-up")
        assert children
        assert all(child.startswith("True") for child in children)


def test_a_signer(tmp_path: Path) -> None:
    trapped = Trapped(tmp_path)
    signer = f"{sys.executable} -c print(1)"
    _, child = trapped.run(*COMMANDS["script"], "acquire", ".", "../outside/bag", "--sign", signer)
    assert child.startswith("True")


@pytest.mark.spark
@pytest.mark.parametrize("job", ["verify .", "stats .", "export . --to {elsewhere}", "lag ."])
def test_the_processes_of_spark(job: str, tmp_path: Path) -> None:
    """Spark's JVM, its workers, and those that plan a data source."""
    trapped = Trapped(tmp_path)
    words = job.format(elsewhere=tmp_path / "exported").split()
    _, *children = trapped.run(*COMMANDS["script"], "job", *words, "--master", "local[1]")
    assert children
    assert all(child.startswith("True") for child in children)
