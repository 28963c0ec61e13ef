"""Random bytes and bit soup in every kind of file: findings, never a traceback, a hang, or memory that grows with a
lie.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqctl.cli.main import run
from rmqctl.store.config.fastjson import fastjson_loads
from tests.conftest import unpack
from tests.support.log_maker import V1, sample_records, write_log

EXAMPLES = [10, pytest.param(100, marks=pytest.mark.slow)]
KINDS = {
    "commitlog": "commitlog/00000000000000000000",
    "queue": "consumequeue/OrderPaid/1/00000000000000000000",
    "index": "index",
    "checkpoint": "checkpoint",
    "config": "config/topics.json",
}
MIB = 1024 * 1024


def soup(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store by a real broker, with a configuration."""
    root = tmp_path_factory.mktemp("soup")
    store = unpack("497-tx", root)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"OrderPaid":{"topicName":"OrderPaid"}},"x":{0:1}}'
    )
    return store


@pytest.fixture
def quiet(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    return capsys


def target(store: Path, kind: str) -> Path:
    path = store / KINDS[kind]
    return next(path.iterdir()) if path.is_dir() else path


def is_object(data: bytes) -> bool:
    """Return whether a broker loads these bytes as a configuration, such as `{}`."""
    with suppress(ValueError, RecursionError):
        return isinstance(fastjson_loads(data.decode("utf-8", "replace")), dict)
    return False


def verify_code(store: Path, quiet: pytest.CaptureFixture[str]) -> int:
    code = run(["verify", str(store)])
    assert "Traceback" not in quiet.readouterr().err
    return code


def look_otherwise(store: Path, which: int, quiet: pytest.CaptureFixture[str]) -> int:
    """Another verb on the same store."""
    verbs = (
        ["info"],
        ["dump", "-o", "jsonl", "--damaged", "--body", "hex"],
        ["queue"],
        ["config", "show"],
        ["dump", "--tail", "3"],
        ["query", "--topic", "OrderPaid", "--key", "order-1"],
        ["trace", "--key", "order-1"],
        ["queue", "-o", "csv", "OrderPaid", "1"],
        ["query", "--topic", "OrderPaid", "--queue", "1", "--at", "-1h"],
    )
    verb = verbs[which % len(verbs)]
    words = 2 if verb[0] == "config" else 1
    code = run([*verb[:words], str(store), *verb[words:]])
    assert "Traceback" not in quiet.readouterr().err
    return code


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_random_bytes_are_findings(
    kind: str, examples: int, whole: Path, tmp_path: Path, quiet: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    path = target(store, kind)
    tried = 0
    memory_mib: list[int] = []

    @soup(examples)
    @given(st.one_of(st.binary(max_size=300), st.binary(min_size=1000, max_size=4000)), st.integers(0, 8))
    @example(b"", 0)
    @example(b"[" * 100_000, 3)
    @example(bytes(4096), 1)
    @example(b"{}", 0)
    def check(data: bytes, which: int) -> None:
        nonlocal tried
        path.write_bytes(data)
        assert verify_code(store, quiet) in ((0, 1) if kind == "config" and is_object(data) else (1, 4, 10))
        assert look_otherwise(store, which, quiet) in (0, 1, 2, 4, 10)
        tried += 1
        if tried % (examples // 5) == 0:
            memory_mib.append(_anonymous_mib())

    check()
    # the first fifth loads or compiles the kernels, which is no memory for a lie
    assert max(memory_mib) - memory_mib[0] < 150


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_bit_soup_is_survived(
    kind: str, examples: int, whole: Path, tmp_path: Path, quiet: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    path = target(store, kind)
    good = path.read_bytes()

    @soup(examples)
    @given(
        st.lists(st.tuples(st.integers(0, len(good) - 1), st.binary(min_size=1, max_size=12)), min_size=1, max_size=8),
        st.integers(0, 8),
    )
    def check(stains: list[tuple[int, bytes]], which: int) -> None:
        data = bytearray(good)
        for at, stain in stains:
            data[at : at + len(stain)] = stain
        path.write_bytes(data)
        assert verify_code(store, quiet) in (0, 1, 4, 10)
        assert look_otherwise(store, which, quiet) in (0, 1, 2, 4, 10)

    check()


def test_a_record_that_claims_2_gib_allocates_nothing(tmp_path: Path, quiet: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path, sample_records(4), file_size=8192)
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    claims = {
        "size": struct.pack(">iI", 2**31 - 1, V1) + data[8:],
        "body": struct.pack(">iI", 2**31 - 1, V1) + data[8:84] + struct.pack(">i", 2**31 - 92) + data[88:],
        "negative body": data[:84] + struct.pack(">i", -5) + data[88:],
        "negative size": struct.pack(">i", -(2**31)) + data[4:],
    }
    for lie in claims.values():
        path.write_bytes(lie)
        os.truncate(path, 2**31 + 4096)  # sparse: the file has room for the lie
        tracemalloc.start()
        assert run(["verify", str(tmp_path), "--level", "1"]) == 1
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 24 * MIB
    assert "damage" in quiet.readouterr().err


def test_deep_json_is_no_traceback(whole: Path, tmp_path: Path, quiet: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    shutil.copytree(whole, store)
    (store / "config" / "topics.json").write_text('{"a":' * 200_000 + "1" + "}" * 200_000)
    assert run(["verify", str(store), "-o", "json"]) == 1
    codes = [finding["code"] for finding in json.loads(quiet.readouterr().out)["findings"]]
    assert codes == ["config-invalid"]


def _anonymous_mib() -> int:
    """Memory of this process that no file is after and that no garbage holds."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) * 1024 // MIB
