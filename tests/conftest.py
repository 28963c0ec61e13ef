"""Golden stores by the real brokers, unpacked afresh for each test that asks; command lines, run in this process."""

from __future__ import annotations

import gc
import hashlib
import json
import lzma
import os
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rmqctl.cli.main import run
from rmqctl.cli.shared.interruption import SIGNALS
from rmqctl.kernels import (
    cq_unit_build,
    cq_unit_compare,
    dispatch_scan,
    filter_scan,
    group_scan,
    index_build,
    index_match,
    json_lines,
    line_encode,
    queue_offset_range,
    queue_simulate,
    row_scan,
    scan,
    send_hash,
)
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where, warm_up
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.golden_archive import blocks_of, write_archive

DATA = Path(__file__).parent / "data"
GOLDEN_NAMES = sorted(path.name.removesuffix(".expected.json.xz") for path in DATA.glob("*.expected.json.xz"))
# versions that write as others do: tests that cost much leave these to those that compare every store with what its
# broker says
LIKE_OTHERS = ("410", "432", "452", "470", "494", "514", "540", "550", "broker-550")
READABLE_NAMES = [name for name in GOLDEN_NAMES if not name.startswith(LIKE_OTHERS)]
Golden = Callable[[str], Path]


@dataclass(frozen=True)
class Result:
    """What a command line left."""

    code: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """stdout as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def document(self) -> dict[str, Any]:
        """stdout as one JSON document, which is valid by its schema."""
        found: dict[str, Any] = json.loads(self.out)
        schema_of(found["schema"]).validate(found)
        return found


@cache
def schema_of(name: str) -> jsonschema.Draft202012Validator:
    """The schema that a document names, such as rmqctl.verify/1: every document that a test looks at is valid by it."""
    verb = name.removeprefix("rmqctl.").removesuffix("/1")
    text = files("rmqctl.cli").joinpath("schema", f"{verb}.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(text))


Rmqctl = Callable[..., Result]

TEST_SECONDS, LONG_TEST_SECONDS = 300, 1800
LONG_MARKS = ("slow", "spark", "interop")


# each change of a store waits for the disk some forty times; nothing is learned from that
IN_MEMORY = Path("/dev/shm")
IN_MEMORY_BYTES_MIN = 8 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Prepare this process, and with it those that the tests start."""
    _have_no_signal_ignored()
    if config.getoption("markexpr") != "interop" and _has_room_in_memory():  # the real broker is asked about real disks
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def _has_room_in_memory() -> bool:
    """Return whether the tests' stores fit into memory; where programs may not be run, as in many containers, some
    tests fail.
    """
    if not IN_MEMORY.is_dir():
        return False
    found = os.statvfs(IN_MEMORY)
    return found.f_bavail * found.f_frsize >= IN_MEMORY_BYTES_MIN and not found.f_flag & os.ST_NOEXEC


def _have_no_signal_ignored() -> None:
    """Have no signal ignored, as it is in a background job of a script or under nohup: the tests' own processes would
    inherit that.

    What has a handler here is at its default in them. SIGINT raises KeyboardInterrupt here, as tests need it; the
    others do nothing.
    """
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else _do_nothing)


def _do_nothing(*_: object) -> None:
    """Handle a signal that whoever started the tests had ignored."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its time limit."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            is_long = any(item.get_closest_marker(mark) for mark in LONG_MARKS)
            item.add_marker(pytest.mark.timeout(LONG_TEST_SECONDS if is_long else TEST_SECONDS))


def pytest_collection_finish() -> None:
    """Have each collection of garbage pass over what lasts as long as the tests: imported modules, and thousands of
    tests.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def signals_given_back() -> Iterator[None]:
    """A command that changed a store keeps its handlers up to the end of its process."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _signals_end_as_they_did() -> Iterator[None]:
    with signals_given_back():
        yield


def unpack(name: str, into: Path) -> Path:
    """Unpack a golden store; returns its root."""
    write_archive(DATA / f"{name}.tar.xz", into)
    return into / "store"


def expected(name: str) -> dict[str, Any]:
    """What the real broker says of a golden store."""
    with lzma.open(DATA / f"{name}.expected.json.xz") as file:
        found: dict[str, Any] = json.load(file)
    return found


@cache
def damage_cases() -> dict[str, dict[str, Any]]:
    """Name -> case of every damage case; nobody changes them."""
    with tarfile.open(DATA / "damage.tar.xz") as tar:
        files = ((member, tar.extractfile(member)) for member in tar.getmembers())
        return {Path(member.name).stem: json.load(file) for member, file in files if file is not None}


def each_damage() -> pytest.MarkDecorator:
    """Give a test the `name` of every damage case: one of each kind now, each on the next store, and the others in the
    slow stage.
    """
    kinds: dict[str, list[str]] = {}
    for name, case in sorted(damage_cases().items()):
        kinds.setdefault(case["case"], []).append(name)
    now = {names[number % len(names)] for number, names in enumerate(kinds.values())}
    names = [pytest.param(name, marks=[] if name in now else [pytest.mark.slow]) for name in sorted(damage_cases())]
    return pytest.mark.parametrize("name", names)


def apply_damage(store: Path, operations: list[dict[str, Any]]) -> None:
    """Apply a damage case's operations to a copy of its store."""
    for operation in operations:
        path = store / operation["path"]
        if operation["op"] == "write":
            with path.open("r+b") as file:
                file.seek(operation["offset"])
                file.write(bytes.fromhex(operation["hex"]))
        elif operation["op"] == "delete":
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        elif operation["op"] == "truncate":
            with path.open("r+b") as file:
                file.truncate(operation["size"])
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes.fromhex(operation.get("hex", "")))


def tree_hash(root: Path) -> str:
    """A digest of every path and every byte below `root`."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()  # the order in which they are walked
        for path in sorted(Path(folder, name) for name in (*folders, *names)):
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            if path.is_file() and not path.is_symlink():
                digest.update(path.stat().st_size.to_bytes(8))
                for at, block in blocks_of(path):
                    digest.update(at.to_bytes(8) + block)
    return digest.hexdigest()


# line_encode takes nearly as long to compile as all others
KERNELS = (
    line_encode, dispatch_scan, filter_scan, group_scan, index_build, index_match, json_lines,
    queue_simulate, queue_offset_range, row_scan, scan, cq_unit_compare, cq_unit_build, send_hash,
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_kept() -> None:
    """Have all kernels ready, from where the command line keeps them: a test that calls one itself would compile it in
    each run.

    Where none are kept yet, two workers compile half of them each, and take the others'.
    """
    cache_where(find_cache)
    warm_up(*(KERNELS[::-1] if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" else KERNELS))


@pytest.fixture(autouse=True)
def _stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every store that tests open under the name ReadOnlyStore: thousands of them share one process and its
    descriptors.

    Where another test still reads one, it opens its files again.
    """
    opened: list[ReadOnlyStore] = []

    def open_store(*arguments: Any, **options: Any) -> ReadOnlyStore:
        opened.append(ReadOnlyStore(*arguments, **options))
        return opened[-1]

    for name, module in list(sys.modules.items()):
        if name.startswith("tests.") and name != __name__ and vars(module).get("ReadOnlyStore") is ReadOnlyStore:
            monkeypatch.setattr(module, "ReadOnlyStore", open_store)
    yield
    for store in opened:
        store.close()


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """Unpacks a golden store into the test's own folder."""
    return lambda name: unpack(name, tmp_path)


@pytest.fixture
def rmqctl(capsys: pytest.CaptureFixture[str]) -> Rmqctl:
    """Runs `rmqctl` with arguments; what it left."""

    def call(*arguments: object) -> Result:
        with signals_given_back():
            code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Result(code, captured.out, captured.err)

    return call
