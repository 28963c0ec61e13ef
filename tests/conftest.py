"""Golden stores by the real brokers, unpacked afresh for each test that asks; command lines, run in this process."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.interruption import SIGNALS
from rmqctl.cli.main import run
from rmqctl.logfile.kernel_cache import find_folder
from rmqctl.store.kernels import keep_in

DATA = Path(__file__).parent / "data"
STORE_NAMES = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz") if path.name != "damage.tar.xz")
READABLE_NAMES = [name for name in STORE_NAMES if "rocksdb" not in name]


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
        """stdout as one JSON document."""
        found: dict[str, Any] = json.loads(self.out)
        return found


Rmqctl = Callable[..., Result]


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
    with tarfile.open(DATA / f"{name}.tar.xz") as tar:
        tar.extractall(into, filter="data")
    return into / "store"


def expected(name: str) -> dict[str, Any]:
    """What the real broker says of a golden store."""
    with lzma.open(DATA / f"{name}.expected.json.xz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def damage_cases() -> dict[str, dict[str, Any]]:
    """Name -> case of every damage case."""
    with tarfile.open(DATA / "damage.tar.xz") as tar:
        files = ((member, tar.extractfile(member)) for member in tar.getmembers())
        return {Path(member.name).stem: json.load(file) for member, file in files if file is not None}


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
    for path in sorted(root.rglob("*")):
        digest.update(str(path.relative_to(root)).encode() + b"\0")
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_kept() -> None:
    """Tests that call the engine itself find the kernels where the command line keeps them."""
    keep_in(find_folder())


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
