"""The kernels' cache is filled once, and never the end of a run. `test_kernel_cache.py` has where it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.kernels import kernel_cache
from tests.conftest import unpack

BROKEN_SAVE = """
from rmqctl.kernels import safe_numba
from numba.core.caching import IndexDataCacheFile
def save(self, key, data):
    raise OSError(28, "No space left on device")
IndexDataCacheFile.save = save
"""
COMPILED = "import rmqctl.kernels.warm_up; rmqctl.kernels.warm_up.SMALL_FIRST_INPUT = 0; "
IMPATIENT = "import rmqctl.cli.shared.first_run; rmqctl.cli.shared.first_run.PATIENCE_SECONDS = 0.05"


def verify(store: Path, home: Path, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """`rmqctl verify --level 1` in a process of its own, whose cache is below `home`."""
    code = f"{COMPILED}{prelude}\nfrom rmqctl.cli.main import main; main()"
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    command = [sys.executable, "-c", code, "verify", str(store), "--level", "1"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack("497-basic", tmp_path / "golden")


def test_the_first_run_says_that_it_compiles_and_the_second_finds_it_ready(store: Path, tmp_path: Path) -> None:
    first, second = verify(store, tmp_path, IMPATIENT), verify(store, tmp_path, IMPATIENT)
    assert (first.returncode, second.returncode) == (0, 0)
    assert "compiling for this machine" in first.stderr
    assert "compiles" not in second.stderr
    kept = list((tmp_path / "cache" / "rmqctl").rglob("*.nb[ci]"))
    assert kept
    assert not list(Path(kernel_cache.__file__).parent.parent.rglob("*.nb[ci]"))


def test_a_full_disk_costs_the_cache_only(store: Path, tmp_path: Path) -> None:
    found = verify(store, tmp_path, BROKEN_SAVE)
    assert found.returncode == 0
    assert "no findings" in found.stdout


def test_a_torn_cache_is_compiled_anew(store: Path, tmp_path: Path) -> None:
    assert verify(store, tmp_path).returncode == 0
    for path in (tmp_path / "cache").rglob("*.nb[ci]"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = verify(store, tmp_path)
    assert (found.returncode, "Traceback" in found.stderr) == (0, False)


VERBS = """
verify
dump -o jsonl --topic OrderPaid
trace --key order-1
query --topic OrderPaid --key order-1 --scan
doctor
recover --dry-run
rebuild all --dry-run
clean --dry-run
truncate --to 452 --dry-run
lag
"""


@pytest.mark.parametrize("command", VERBS.strip().splitlines())
def test_a_small_store_needs_no_numba(command: str, store: Path, tmp_path: Path) -> None:
    verb, *options = command.split()
    loaded = "{'numba', 'llvmlite'} & {*sys.modules}"
    code = f"import atexit, sys; atexit.register(lambda: print({loaded}, file=sys.stderr))\n"
    program = [sys.executable, "-c", f"{code}from rmqctl.cli.main import main; main()"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = subprocess.run(
        [*program, verb, str(store), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode in (0, 1), found.stderr
    assert found.stderr.endswith("set()\n")
