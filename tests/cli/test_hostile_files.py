"""What its owner puts in place of the small files of a store: findings or one line, in flat memory, for every verb that
reads them.
"""

from __future__ import annotations

import os
import shutil
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.cli.main import run
from tests.conftest import Rmqctl, unpack

JOURNAL = ".rmqctl/journal/0001-recover/journal.json"
CONFIGS = [
    f"config/{name}{end}" for name in ("topics.json", "consumerOffset.json", "delayOffset.json") for end in ("", ".bak")
]
SMALL_FILES = (
    *CONFIGS,
    "config/subscriptionGroup.json",
    "config/lmqConsumerOffset.json",
    "config/timercheck",
    "checkpoint",
    "abort.bak",
    "rmqctl-clean.log",
    JOURNAL,
)
VERBS = (
    ("info",),
    ("verify",),
    ("config", "show"),
    ("query", "--topic", "OrderPaid", "--key", "k"),
    ("trace", "--key", "order-1"),
    ("checkpoint",),
    ("recover", "--dry-run"),
    ("rebuild", "all", "--dry-run"),
    ("clean", "--dry-run", "--protect-unconsumed"),
    ("undo",),
    ("queue",),
    ("queue", "OrderPaid", "0"),
    ("dump", "--transaction", "prepared"),
    ("truncate", "--to", "120000", "--dry-run"),
    ("heal", "--dry-run"),
    ("preflight", "--to", "4.7.1"),
    ("checkpoint", "set", "--physic-msg-timestamp", "5", "--dry-run"),
)
EXIT_CODES = {0, 1, 2, 4}
DEPTH = 100_000
MEMORY_MAX = 120 * 1024 * 1024


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(b'{"a":"')
        file.truncate(size)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path has at most 107 bytes
        listener.bind(path.name)
        os.chdir(here)


ATTACKS: dict[str, Callable[[Path], object]] = {
    "deep lists": lambda path: path.write_text("[" * DEPTH + "]" * DEPTH),
    "deep objects": lambda path: path.write_text('{"a":' * DEPTH + "1" + "}" * DEPTH),
    "deep enough to parse": lambda path: path.write_text(
        '{"topicConfigTable":{"T":{"a":' + "[" * 500 + "]" * 500 + "}}}"
    ),
    "many values": lambda path: path.write_bytes(b'{"a":[' + b"[]," * 2**21 + b"[]]}"),
    "many strings": lambda path: path.write_bytes(b'""' * 2**22),
    "many comments": lambda path: path.write_bytes(b"//\n''" * 2**20),
    "30 MiB": lambda path: sparse(path, 30 * 2**20),
    "1 TiB": lambda path: sparse(path, 2**40),
    "FIFO": os.mkfifo,
    "socket": bind,
    "folder": lambda path: path.mkdir(),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link out": lambda path: path.symlink_to("/etc/passwd"),
}
NUMBERS = (
    "1e999",
    str(2**70),
    str(-(2**70)),
    "NaN",
    "1.5",
    "null",
    "true",
    '"1"',
    '"\\u0000"',
    '"\\ud800"',
    "[[]]",
    '{"a":{"b":1}}',
)
DOCUMENTS = {
    "config/topics.json": '{"dataVersion":{"counter":V,"stateVersion":V},'
    '"topicConfigTable":{"OrderPaid":{"readQueueNums":V,"attributes":V}}}',
    "config/consumerOffset.json": '{"offsetTable":{"OrderPaid@g":{0:V,1:V},"\\ud800@\\u0000":{0:V}}}',
    "config/lmqConsumerOffset.json": '{"lmqOffsetTable":{"%LMQ%a@g":V}}',
    "config/delayOffset.json": '{"dataVersion":V,"offsetTable":{1:V,3:V}}',
    "config/subscriptionGroup.json": '{"subscriptionGroupTable":{"g":V,"h":{"retryMaxTimes":V}}}',
    "rmqctl-clean.log": '{"path":V,"bytes":V}\n{"path":"commitlog/00000000000000000000","bytes":V}\n',
    JOURNAL: '{"verb":"recover","summary":"","time_ms":V,"changes":[V],"files":[{"path":V,"size":V,"mtime_ns":V,'
    '"ranges":[[V,V]],"pieces":[],"kept":V}],"moved":[{"path":V,"kept":V,"staged":V}],"made":[V],"folders":{"a":V},'
    '"watched":{"b":[V,V]}}',
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose first file of the log is missing: verify asks what clean deleted."""
    store = unpack("533-basic", tmp_path_factory.mktemp("hostile"))
    (store / "commitlog" / f"{0:020d}").unlink()
    return store


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "store")
    (tmp_path / "store" / JOURNAL).parent.mkdir(parents=True)
    (tmp_path / "store" / "config").mkdir(exist_ok=True)
    return tmp_path / "store"


def every_verb(store: Path) -> dict[str, int]:
    found = {}
    for verb in VERBS:
        words = 2 if verb[0] == "config" else 1
        found[" ".join(verb)] = run([*verb[:words], str(store), *verb[words:]])
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_no_small_file_is_no_bug_and_no_memory(
    attack: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in SMALL_FILES:
        (store / name).unlink(missing_ok=True)
        ATTACKS[attack](store / name)
    codes = every_verb(store)
    assert set(codes.values()) <= EXIT_CODES, (codes, capsys.readouterr().err[-2000:])
    assert codes["verify"] in (1, 4)
    assert codes["config show"] in (1, 4)  # 4 where a link out of the store was not followed


def test_a_small_file_takes_little_memory_however_large_it_is(store: Path) -> None:
    for attack in ("many values", "many strings", "many comments", "1 TiB"):
        for name in ("config/topics.json", JOURNAL):
            ATTACKS[attack](store / name)
        tracemalloc.start()
        run(["config", "show", str(store)])
        run(["undo", str(store)])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MEMORY_MAX, attack


@pytest.mark.parametrize("number", NUMBERS)
def test_a_value_of_another_type_is_no_bug(number: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, document in DOCUMENTS.items():
        (store / name).write_text(document.replace("V", number), encoding="utf-8")
    codes = every_verb(store)
    assert set(codes.values()) <= EXIT_CODES, (codes, capsys.readouterr().err[-2000:])


def test_a_config_that_no_broker_takes_says_where(store: Path, rmqctl: Rmqctl) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1e999}}}')
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{"readQueueNums":[]}}}')
    findings = rmqctl("verify", store, "-o", "json").document()["findings"]
    told = {finding["path"]: finding["detail"] for finding in findings if finding["code"] == "config-invalid"}
    assert "the number 1e999 is too large" in told["config/consumerOffset.json"]
    assert told["config/topics.json"].endswith("topicConfigTable['T'].readQueueNums is a list, not a number")


def test_what_stands_in_place_of_a_single_file_is_a_finding(store: Path, rmqctl: Rmqctl) -> None:
    for name in ("checkpoint", "lock", "abort.bak"):
        (store / name).unlink(missing_ok=True)
        os.mkfifo(store / name)
    findings = rmqctl("verify", store, "-o", "json").document()["findings"]
    assert {"checkpoint", "lock", "abort.bak"} <= {
        finding["path"] for finding in findings if finding["code"] == "foreign-file"
    }


def test_receipts_that_cannot_be_read_are_a_finding(store: Path, rmqctl: Rmqctl) -> None:
    os.mkfifo(store / "rmqctl-clean.log")
    findings = rmqctl("verify", store, "-o", "json").document()["findings"]
    assert [finding["detail"] for finding in findings if finding["path"] == "rmqctl-clean.log"] == [
        "cannot be read: not a regular file"
    ]


def test_lines_that_are_no_receipts_are_noted(store: Path, rmqctl: Rmqctl) -> None:
    (store / "rmqctl-clean.log").write_text('{"path":"commitlog/00000000000000000000","bytes":"65536"}\n7\n')
    result = rmqctl("verify", store)
    assert (
        "note: ignored in the receipts of `rmqctl clean`: 2 lines of another form, the first is rmqctl-clean.log:1"
        in result.err
    )


@pytest.mark.parametrize("path", [b"a\\u0000b", b"a\\ud800b"])
def test_a_broker_conf_whose_path_is_none_is_a_bad_request(path: bytes, store: Path, rmqctl: Rmqctl) -> None:
    (store / "broker.conf").write_bytes(b"storePathCommitLog=/" + path)
    result = rmqctl("verify", store, "--broker-conf", store / "broker.conf")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "is not a path" in result.err
