"""Only code that root or this user put into the cache is ever returned, whatever others do meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmqctl.kernels import kernel_cache
from rmqctl.kernels.kernel_cache import KernelCache, find_cache
from tests.conftest import IN_MEMORY

SOMEBODY = 65534
RACE_SECONDS = 1.5
# swaps a folder with another for as long as it runs, as whom it is told: an id, or -1 for whoever starts it
SWAP = """
import os, sys
home, uid = sys.argv[1], int(sys.argv[2])
if uid >= 0:
    os.setgroups([]), os.setgid(uid), os.setuid(uid)
os.chdir(home)
print(flush=True)
while True:
    os.rename("rmqctl", "aside"), os.rename("evil", "rmqctl")
    os.rename("rmqctl", "evil"), os.rename("aside", "rmqctl")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder that may hold a cache."""
    home = tmp_path / "cache"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(kernel_cache, "temporary_paths", list)
    kernel_cache._first_of.cache_clear()
    yield home
    kernel_cache._first_of.cache_clear()


def found() -> KernelCache | None:
    kernel_cache._first_of.cache_clear()
    return find_cache()


def code(cache: KernelCache) -> Path:
    """A file in the cache, as numba reads it."""
    return Path(cache.numba_path, "a.nbi")


def test_only_this_user_can_enter_the_cache(home: Path) -> None:
    """numba makes folders in it, which others could write to where the umask lets them."""
    cache = found()
    assert cache is not None
    assert cache.path.parent == home / "rmqctl"
    assert [path.stat().st_mode & 0o777 for path in (cache.path.parent, cache.path)] == [0o700, 0o700]
    cache.path.chmod(0o755)
    assert found() is not None
    assert cache.path.stat().st_mode & 0o777 == 0o700


def test_which_modules_the_cache_has(home: Path) -> None:
    cache = found()
    assert cache is not None
    cache.seal("scan._walk")
    assert [cache.has([name]) for name in ("rmqctl.kernels.scan", "scan", "scan._walk")] == [True] * 3
    assert [cache.has(names) for names in (["scan", "row_scan"], ["scan._wal"], ["can"])] == [False] * 3


def test_a_file_with_another_byte_is_deleted(home: Path) -> None:
    cache = found()
    assert cache is not None
    files = [cache.path / "kernels_1" / f"scan._walk-87.py311.{suffix}" for suffix in ("nbi", "1.nbc")]
    files[0].parent.mkdir()
    for file in files:
        file.write_bytes(b"code")
    cache.seal("scan._walk")
    cache.check("scan._walk")
    assert all(file.exists() for file in files)
    files[1].write_bytes(b"cods")
    cache.check("scan._walk")
    assert not any(file.exists() for file in files)


def test_folders_that_another_could_replace_are_not_used(home: Path) -> None:
    cache = found()
    assert cache is not None
    for folder in (cache.path, cache.path.parent, home, home.parent):
        before = folder.stat().st_mode
        for mode in (0o770, 0o707):
            folder.chmod(mode)
            assert found() is None
        folder.chmod(before)
        assert found() is not None
    home.chmod(0o1777)  # as /tmp is: only the owner of a folder can replace it
    assert found() is not None


def test_links_are_followed_up_to_the_cache_folder_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = home.parent / "link"
    link.symlink_to(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(link))
    cache = found()
    assert cache is not None
    cache.path.parent.rename(home / "elsewhere")
    (home / "rmqctl").symlink_to("elsewhere")
    assert found() is None


def test_a_home_that_belongs_to_another_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `sudo`, where HOME is kept: here, this process takes itself for another user than the one it is."""
    uid = os.geteuid()
    if uid == 0:
        os.chown(home, SOMEBODY, SOMEBODY)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert found() is None
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("who", ["anybody", "the owner of the home"])
def test_a_swap_never_leads_to_code_of_others(who: str, home: Path) -> None:
    """Either everybody may write to the home, which needs no second user; or, as root, it belongs to another."""
    good = found()
    assert good is not None
    code(good).write_bytes(b"good")
    shutil.copytree(home / "rmqctl", home / "evil")
    for path in (home / "evil").rglob("a.nbi"):
        path.write_bytes(b"evil")
    is_other = who == "the owner of the home" and os.geteuid() == 0
    if is_other:
        for path in (home, home / "evil", *(home / "evil").rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY)
        for path in home.parents:  # up to the folder for temporary files, so that the other user gets there
            with suppress(ValueError):
                path.relative_to(IN_MEMORY if home.is_relative_to(IN_MEMORY) else Path("/tmp"))
                path.chmod(path.stat().st_mode | 0o011)
    else:
        home.chmod(0o777)
    command = [sys.executable, "-P", "-c", SWAP, str(home), str(SOMEBODY if is_other else -1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        seen = set()
        end = time.monotonic() + RACE_SECONDS
        while time.monotonic() < end:
            cache = found()
            seen.add(cache and code(cache).read_bytes())
            if cache is not None:
                os.close(cache.folder)
        assert swapper.poll() is None
        swapper.kill()
    assert seen == {None}
    assert code(good).read_bytes() == b"good"  # what was opened before stays what it was
