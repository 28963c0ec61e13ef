"""Root on a store of another user: it goes on as that user, and no swap of a folder for a link leads it out of the
store.
"""

from __future__ import annotations

import os
import pwd
import random
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import rmqctl as rmqctl_package
from rmqctl.logfile.access.owner import Owner, _groups_of
from tests.conftest import Rmqctl, unpack
from tests.support.other_owner import OWNER, owned, owners

PAUSE_SECONDS_MAX = 0.002
# what is there from the moment on that a verb writes; of others its journal
BEGUN = {
    "append": "abort",
    "clean": "rmqctl-clean.log",
    "undo": "commitlog",
}  # an undo shows nothing: from its start on
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
CHANGES = {
    "clean": ("--keep-files", "1", "--interval", "5", "--yes"),
    "recover": ("--mode", "abnormal", "--yes"),
    "rebuild": ("all", "--yes"),
    "truncate": ("--to", "40404", "--yes"),
    "append": ("--topic", "new", "--body", "x", "--queue", "3"),  # compiles what a user without a cache needs
    "checkpoint": ("set", "--physic-msg-timestamp", "5", "--yes"),
}
# each is swapped in turn
SWAPPED = ("commitlog", "consumequeue", "index", ".rmqctl", "consumequeue/OrderPaid", "config")
Fingerprint = dict[str, tuple[int, int, int, int, bytes]]


def fingerprint(folder: Path) -> Fingerprint:
    found = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_uid, status.st_mode, status.st_mtime_ns, status.st_size, data)
    return found


def start(verb: str, store: Path, *more: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "rmqctl", verb, str(store), *CHANGES.get(verb, ("--yes",)), *more]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=120)
    assert "a bug of rmqctl" not in said
    return process.returncode, said


@pytest.mark.parametrize("verb", [verb for verb in CHANGES if verb != "append"])
def test_a_dry_run_says_as_whom_the_change_would_go_on(verb: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = owned(unpack("471-basic", tmp_path))
    before = fingerprint(store)
    options = [option for option in CHANGES[verb] if option != "--yes"]
    result = rmqctl(verb, store, *options, "--dry-run")
    assert result.code in (0, 1)
    assert f"the change itself would run as nobody (uid {OWNER}), the owner of the store" in result.err
    assert "would go on" not in rmqctl(verb, store, *options, "--dry-run", "--as-root").err
    os.chown(store / "checkpoint", 0, 0)
    assert "the change itself would be refused: " in rmqctl(verb, store, *options, "--dry-run").err
    os.chown(store / "checkpoint", OWNER, OWNER)
    assert {path: found[:2] for path, found in fingerprint(store).items()} == {
        path: found[:2] for path, found in before.items()
    }


def test_a_dry_run_of_an_undo_says_so_too(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = owned(unpack("471-basic", tmp_path))
    assert ended(start("truncate", store))[0] == 3
    assert "would run as nobody" in rmqctl("undo", store, "--dry-run").err


def test_links_that_are_followed_need_root_as_well(tmp_path: Path) -> None:
    """--follow-links --as-root writes where the link leads; without --as-root what is there belongs to root, and is
    refused.
    """
    store = unpack("471-basic", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    (store / "consumequeue").rename(elsewhere)
    (store / "consumequeue").symlink_to(elsewhere)
    owned(store)
    before = fingerprint(store), fingerprint(elsewhere)
    code, said = ended(start("truncate", store, "--follow-links"))
    assert (code, (fingerprint(store), fingerprint(elsewhere)) == before) == (4, True), said
    code, said = ended(start("truncate", store, "--follow-links", "--as-root"))
    assert (code, "running as" in said) == (3, False), said
    assert fingerprint(elsewhere) != before[1]
    assert {path.stat().st_uid for path in elsewhere.rglob("*")} == {0}


def test_files_of_several_users_are_refused(tmp_path: Path) -> None:
    store = owned(unpack("471-basic", tmp_path))
    os.chown(store / "checkpoint", 0, 0)
    before = fingerprint(store)
    code, said = ended(start("checkpoint", store))
    assert (code, fingerprint(store)) == (4, before)
    assert f"belong to several users: root (uid 0), nobody (uid {OWNER}); nothing was changed" in said
    assert f"(run `chown -R {OWNER} {store}`, or give --as-root" in said
    assert ended(start("checkpoint", store, "--as-root"))[0] == 0
    assert owners(store / ".rmqctl") == {(OWNER, OWNER)}
    assert ended(start("undo", store, "--as-root"))[0] == 0


def test_a_job_refuses_a_store_with_files_of_several_users(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = owned(unpack("471-basic", tmp_path))
    os.chown(store / "checkpoint", 0, 0)
    before = fingerprint(store)
    result = rmqctl("job", "rebuild", store, "--yes")
    assert (result.code, fingerprint(store)) == (4, before)
    assert f"belong to several users: root (uid 0), nobody (uid {OWNER}); nothing was changed" in result.err


def test_a_job_refuses_stores_of_several_users(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """It would have to be several users at once."""
    stores = unpack("471-basic", tmp_path / "roots"), owned(unpack("471-basic", tmp_path / "theirs"))
    for path in (stores[0], *stores[0].rglob("*")):
        os.chown(path, 0, 0)
    before = [fingerprint(store) for store in stores]
    result = rmqctl("job", "rebuild", *stores, "--yes")
    assert (result.code, [fingerprint(store) for store in stores]) == (4, before)
    assert (
        f"the stores belong to several users: {stores[0]} to root (uid 0), {stores[1]} to nobody (uid {OWNER})"
        in result.err
    )


@pytest.mark.spark
def test_a_job_whose_python_the_owner_may_not_read_says_so(tmp_path: Path) -> None:
    store = owned(unpack("471-basic", tmp_path))
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    package = shutil.copytree(
        Path(rmqctl_package.__file__).parent, private / "rmqctl", ignore=shutil.ignore_patterns("__pycache__")
    )
    before = fingerprint(store)
    environ = {**os.environ, "PYTHONPATH": str(private), "PYTHONSAFEPATH": "1"}
    line = [sys.executable, "-m", "rmqctl", "job", "rebuild", str(store), "--yes"]
    result = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, fingerprint(store)) == (4, before)
    assert re.search(
        f"({re.escape(sys.executable)}|{package}/__init__.py): the owner of the store cannot read it", result.stderr
    )


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[pytest.mark.slow] if verb == "append" else []) for verb in CHANGES]
)
def test_what_root_changes_is_still_its_owners(verb: str, tmp_path: Path) -> None:
    """Also by a program that only root may read, which is imported before root becomes the owner, and on a store below
    a link that only root may follow: what the link leads to stays the store.
    """
    store = owned(unpack("471-basic", tmp_path / "there"))
    first = min((store / "consumequeue/OrderPaid/0").iterdir())
    first.write_bytes(bytes(20) + first.read_bytes()[20:])
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed/link").symlink_to("../there")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    shutil.copytree(
        Path(rmqctl_package.__file__).parent, private / "rmqctl", ignore=shutil.ignore_patterns("__pycache__")
    )
    before = fingerprint(store)
    environ = {**os.environ, "PYTHONPATH": str(private), "PYTHONSAFEPATH": "1"}
    line = [sys.executable, "-m", "rmqctl", verb, str(tmp_path / "closed/link/store"), *CHANGES[verb]]
    result = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode in (0, 3), result.stderr
    assert f"(uid {OWNER}), the owner of the store" in result.stderr
    assert fingerprint(store) != before
    assert owners(store) == {(OWNER, OWNER)}


def test_receipts_and_metrics_where_only_root_may_write(tmp_path: Path) -> None:
    store = owned(unpack("471-basic", tmp_path))
    log, metrics = tmp_path / "receipts", tmp_path / "clean.prom"
    assert ended(start("clean", store, "--log-json", str(log), "--metrics", str(metrics)))[0] == 0
    assert len(log.read_text().splitlines()) > 1
    assert "rmqctl_clean_exit_status" in metrics.read_text()


class Swapper:
    """Swaps folders of a store for links to their likes in `outside`, and back, from the moment that a verb begins to
    write.
    """

    def __init__(self, store: Path, outside: Path) -> None:
        self.swaps = 0
        self._store = store
        self._outside = outside
        self._aside = store.parent / "aside"
        self._chance = random.Random(1)

    def during(self, process: subprocess.Popen[str], begun: Path) -> None:
        """Swap until the process ends, once a path shows that it writes."""
        while process.poll() is None and not begun.exists():
            time.sleep(0.0002)
        while process.poll() is None:
            self._swap(self._chance.choice(SWAPPED))
            time.sleep(self._chance.random() * PAUSE_SECONDS_MAX)  # or no verb comes any further

    def _swap(self, name: str) -> None:
        path = self._store / name
        try:
            path.rename(self._aside)
            path.symlink_to(self._outside / name)
        except OSError:  # it does not exist, or comes back meanwhile
            pass
        else:
            self.swaps += 1
            time.sleep(self._chance.random() * PAUSE_SECONDS_MAX)
        if path.is_symlink():
            path.unlink()
        while self._aside.exists():
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):  # the verb made it once more
                self._aside.rename(path)


@pytest.mark.parametrize(
    ("as_root", "swaps_min"),
    [
        pytest.param((), 12, id="as-owner"),
        pytest.param((), 200, marks=pytest.mark.slow, id="as-owner-longer"),
        pytest.param(("--as-root",), 200, marks=pytest.mark.slow, id="as-root"),
    ],
)
@pytest.mark.parametrize("verb", [*CHANGES, "undo"])
def test_no_swap_leads_out_of_the_store(
    verb: str, as_root: tuple[str, ...], swaps_min: int, tmp_path: Path, rmqctl: Rmqctl
) -> None:
    whole = unpack("471-basic", tmp_path / "whole")
    if verb == "undo":
        assert rmqctl("truncate", whole, *CHANGES["truncate"]).code == 3
    outside = shutil.copytree(whole, tmp_path / "outside")
    for part in ("journal", "expired"):
        (outside / ".rmqctl" / part).mkdir(parents=True, exist_ok=True)
        (outside / ".rmqctl" / part / "index:1").write_bytes(b"somebody's")
    before = fingerprint(outside)
    store = tmp_path / "store"
    swapper = Swapper(store, outside)
    while swapper.swaps < swaps_min:
        shutil.rmtree(store, ignore_errors=True)
        owned(shutil.copytree(whole, store))
        process = start(verb, store, *as_root)
        swapper.during(process, store / BEGUN.get(verb, ".rmqctl/journal"))
        ended(process)
    assert fingerprint(outside) == before


def test_the_owner_keeps_its_own_group() -> None:
    """A store may have another group than its owner, and lie below a folder that is open to the owner's alone."""
    user = pwd.getpwnam("daemon")
    assert _groups_of(Owner(user.pw_uid, 12345))[:2] == [12345, user.pw_gid]
    assert _groups_of(Owner(user.pw_uid, user.pw_gid)).count(user.pw_gid) == 1
    assert _groups_of(Owner(2**31 - 5, 12345)) == [12345]
