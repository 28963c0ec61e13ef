"""Temporary files and compiled code are never in the current folder, and never in a store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmqctl
from rmqctl.errors import Unreadable
from rmqctl.logfile.memory.mapped_memory import Spool
from rmqctl.scratch import open_folder, temporary_folder
from tests.conftest import Rmqctl, tree_hash, unpack

SOMEBODY = 65534
# a mount of its own over each folder that could be written, after the store has become the current folder
READ_ONLY = "mount -t tmpfs -o ro,mode=1777 none $folder"
FULL = (
    "mount -t tmpfs -o size=4k,nr_inodes=3,mode=1777 none $folder; "
    "head -c 9000 /dev/zero >$folder/one 2>$folder/two || :"
)
# root's Python may lie where only root may read
AS_USER = "setpriv --inh-caps +dac_read_search --ambient-caps +dac_read_search --clear-groups"
# the environment of the tests, and rmqctl apart from it, may lie in one of the folders that are hidden
IN_CONTAINER = """set -e
mount -t tmpfs none /mnt
mkdir -p /mnt/prefix /mnt/code/rmqctl
mount --bind {prefix} /mnt/prefix
mount --bind {package} /mnt/code/rmqctl
mount -o remount,ro /mnt
for folder in /tmp /var/tmp /dev/shm; do {mount}; done
{as_user} {rmqctl} verify . >&2
{as_user} {rmqctl} doctor . >&2
{as_user} {rmqctl} warm-up || echo $?
"""


def test_a_store_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = unpack("497-basic", tmp_path)
    below = store / "config" / "temporary"
    below.mkdir()
    before = tree_hash(store)
    for folder in (store, below):
        monkeypatch.setenv("TMPDIR", str(folder))
        assert not Path(temporary_folder()).is_relative_to(store)
        with pytest.raises(OSError, match="it lies in a store"):
            open_folder(str(folder), "rmqctl", creates=True)
    assert tree_hash(store) == before


def test_a_file_that_is_called_commitlog_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp, anybody can create it, and would take the folder from all others."""
    (tmp_path / "commitlog").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_folder() == str(tmp_path)


@pytest.mark.parametrize("path", ["", ".", "relative", "~/.cache"])
def test_a_relative_path_is_no_place(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative").mkdir()
    monkeypatch.setenv("TMPDIR", path)
    assert not Path(temporary_folder()).is_relative_to(tmp_path)
    with pytest.raises(OSError, match="not an absolute path"):
        open_folder(path, "rmqctl", creates=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["relative"]


def test_where_code_is_kept_nobody_else_can_replace_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that all can write still holds files that have no name, such as the units of a rebuild."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_folder(holds_code=True) == str(tmp_path)
    tmp_path.chmod(0o777)
    assert temporary_folder(holds_code=True) != str(tmp_path)
    assert temporary_folder() == str(tmp_path)


def test_no_place_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rmqctl: Rmqctl) -> None:
    monkeypatch.setattr("rmqctl.scratch.temporary_paths", lambda: [str(tmp_path / "gone"), "relative"])
    with pytest.raises(Unreadable, match=r"gone: No such file.*relative: not an absolute path.*set TMPDIR") as error:
        Spool()
    assert "\n" not in str(error.value)
    result = rmqctl("job", "verify", unpack("497-basic", tmp_path), "--master", "local[1]")
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert "set TMPDIR to a folder" in result.err


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    spool = Spool()
    spool._file.close()
    monkeypatch.setattr(spool, "_file", Path("/dev/full").open("wb"))  # noqa: SIM115 -- `close` closes it
    with pytest.raises(Unreadable, match="No space left on device") as error:
        spool.put(bytes(1 << 20))
    assert error.value.path == str(tmp_path)
    spool.close()


@pytest.mark.parametrize("uid", [None, SOMEBODY])
@pytest.mark.parametrize("mount", [READ_ONLY, FULL], ids=["read-only", "full"])
def test_a_container_without_a_place_to_write(mount: str, uid: int | None, tmp_path: Path) -> None:
    """The store is the current folder, and everybody may write to it: nothing is kept there, and verbs work."""
    store = unpack("497-basic", tmp_path)
    store.chmod(0o777)
    before = tree_hash(store)
    is_root = os.geteuid() == 0
    as_user = f"{AS_USER} --reuid {uid} --regid {uid}" if uid and is_root else ""
    places = {"prefix": sys.prefix, "package": Path(rmqctl.__file__).parent}
    script = IN_CONTAINER.format(mount=mount, as_user=as_user, rmqctl="/mnt/prefix/bin/python -P -m rmqctl", **places)
    environ = {"PATH": os.environ["PATH"], "HOME": "/proc/nobody", "PYTHONPATH": "/mnt/code"}
    command = ["unshare", "--mount", *([] if is_root else ["--map-root-user"]), "sh", "-c", script]
    ended = subprocess.run(command, cwd=store, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, tree_hash(store)) == (0, "4\n", before), ended.stderr
    assert "no cache folder in which no other user can put a file (set XDG_CACHE_HOME" in ended.stderr
    assert "Traceback" not in ended.stderr
