"""`rmqctl acquire`: what the bag holds, in any order of faults; other programs check it, too."""

from __future__ import annotations

import base64
import json
import mmap
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bagit
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.logfile.system.storage import Storage
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.acquire import acquisition, bag
from tests.conftest import Rmqctl, tree_hash
from tests.support.killed_writer import killed_while_writing
from tests.support.lock_holder import lock_held
from tests.support.opened_files import replace_open

Golden = Callable[[str], Path]
MIB = 1 << 20
LOG = f"{0:020d}"
# no unit or checkpoint leads beyond the log; the first copy can be older than the first checkpoint
OF_A_CRASH = {"abort", "missing-unit", "index-missing", "checkpoint-behind", "checkpoint-missing"}


def checked(dest: Path) -> None:
    """By coreutils and by the Library of Congress."""
    for name in (bag.MANIFEST, bag.TAG_MANIFEST):
        subprocess.run(["sha256sum", "-c", "--quiet", "--strict", name], cwd=dest, check=True)
    bagit.Bag(str(dest)).validate()


def rows_of(dest: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (dest / bag.FILES).read_text().splitlines()]
    return {row["path"]: row for row in lines if "path" in row}


def path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["broker-497", "533-basic", "broker-533-rocksdb", "326-basic"])
def test_a_bag_that_others_validate(name: str, golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden(name), tmp_path / "bag"
    before = tree_hash(store)
    result = rmqctl("acquire", store, dest, "-o", "json")
    assert (result.code, result.err) == (0, "")
    document = result.document()
    assert (document["changed"], document["unreadable"], document["links"]) == ([], [], [])
    checked(dest)
    copy = dest / "data" / "store"
    assert contents(copy) == contents(store)
    assert tree_hash(store) == before
    assert all(
        each.stat().st_mtime_ns == (store / each.relative_to(copy)).stat().st_mtime_ns for each in copy.rglob("*")
    )
    assert document["copied"] == len(contents(store)) == len((dest / bag.MANIFEST).read_text().splitlines())
    version = "0.97" if "%" in (dest / bag.MANIFEST).read_text() else "1.0"
    assert f"BagIt-Version: {version}\n" in (dest / "bagit.txt").read_text()
    found = rmqctl("attest", dest, "-o", "json")
    assert (found.code, found.document()["head"]) == (0, document["head"])
    assert found.document()["matched"] == document["copied"] + 5
    assert rmqctl("verify", copy).code == rmqctl("verify", store).code


def test_a_line_a_file(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    assert rmqctl("acquire", store, dest).code == 0
    head = json.loads((dest / bag.FILES).read_text().splitlines()[0])
    assert head["store"] == str(store)
    assert {"host", "startedAt", "command", "version", "toolSha256"} <= head.keys()
    row, found = rows_of(dest)["data/store/checkpoint"], (store / "checkpoint").stat()
    assert (row["size"], row["mtime"], row["uid"], row["gid"]) == (4096, found.st_mtime_ns, found.st_uid, found.st_gid)
    assert (row["mode"], row["links"], row["chunks"]) == (found.st_mode & 0o7777, 1, [row["sha256"]])
    assert row["after"]["mtime"] == row["mtime"]
    assert rows_of(dest)["data/store/config"]["kind"] == "folder"
    order = [path.split("/")[2] for path in rows_of(dest) if path.count("/") > 1]
    assert order.index("checkpoint") < order.index("index") < order.index("consumequeue") < order.index("commitlog")
    assert order[-1] == "commitlog"
    log = [path for path in rows_of(dest) if path.startswith("data/store/commitlog/")]
    assert log == sorted(log, reverse=True)


def test_holes_stay_holes(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    with (store / "commitlog" / "sparse").open("wb") as file:
        file.truncate(40 * MIB)
        for at in (0, 9 * MIB, 9 * MIB + 8192, 33 * MIB - 100):
            file.seek(at)
            file.write(os.urandom(5000))
    result = rmqctl("acquire", store, dest)
    assert result.code == 0
    checked(dest)
    row, copy = rows_of(dest)["data/store/commitlog/sparse"], dest / "data/store/commitlog/sparse"
    assert copy.read_bytes() == (store / "commitlog" / "sparse").read_bytes()
    assert copy.stat().st_blocks <= (store / "commitlog" / "sparse").stat().st_blocks
    assert row["holes"][:2] == [[8192, 9 * MIB], [9 * MIB + 16384, 33 * MIB - 4096]]
    assert len(row["chunks"]) == 40


HOSTILE = [
    b"line\nfeed", b"carriage\rreturn", b"%RETRY%group", b"%0A", b"%0a%0D", b"50%", b"not\xffutf8", b"=0A", b"a=b",
    b"blank ", b" blank", b"*star", b"back\\slash", "gr\u00fc\u00df".encode(), "line\u2028separator".encode(),
    b"\n" * 255, b"..x", b"-rf", b"#", b"x\x7f\x1b[31m", "nbsp\u00a0".encode(),
]  # fmt: skip


def test_hostile_names(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    root = os.fsencode(store)
    for number, name in enumerate(HOSTILE):
        Path(os.fsdecode(root + b"/" + name)).mkdir()
        Path(os.fsdecode(root + b"/" + name + b"/" + name)).write_bytes(b"content %d" % number)
    result = rmqctl("acquire", store, dest, "-o", "json")
    assert result.code == 0
    result.document()
    checked(dest)
    rows = [row for row in rows_of(dest).values() if row["kind"] == "file" and row["size"] in (9, 10)]
    raw = {row["sha256"]: bytes.fromhex(row["rawName"]) for row in rows if "rawName" in row}
    for number, name in enumerate(HOSTILE):
        (row,) = (row for row in rows if (dest / row["path"]).read_bytes() == b"content %d" % number)
        assert raw.get(row["sha256"], row["path"].split("/")[-1].encode()) == name
    assert (dest / "data/store/%RETRY%group/%RETRY%group").exists()
    assert rmqctl("attest", dest).code == 0


@given(st.lists(st.binary(min_size=1, max_size=255).filter(lambda name: not {0, 47} & set(name)), max_size=8))
def test_no_two_names_become_one(names: list[bytes]) -> None:
    safe = [bag.payload_name(os.fsdecode(name)) for name in names]
    assert len(set(safe)) == len(set(names))
    assert all(name.isprintable() and len(name.encode()) <= 255 and name == name.rstrip() for name in safe)
    for name, raw in zip(safe, names, strict=True):
        if len(raw) <= 85:
            assert re.sub(rb"=([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), name.encode()) == raw


def test_links_are_recorded_and_not_followed(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (store / "inside").symlink_to("checkpoint")
    os.mkfifo(store / "pipe")
    assert rmqctl("acquire", store, dest).code == 0
    (store / "outside").symlink_to(secret)
    result = rmqctl("acquire", store, tmp_path / "more", "-o", "json")
    assert result.code == 4
    targets = {row["path"]: (row["target"], row["isOutside"]) for row in result.document()["links"]}
    assert targets == {
        "data/store/inside": ("checkpoint", False),
        "data/store/outside": (str(secret), True),
    }
    assert rows_of(dest)["data/store/pipe"]["kind"] == "special"
    assert not list((dest / "data/store").glob("[ip]*pe"))
    assert "secret" not in {path.name for path in (tmp_path / "more").rglob("*")}
    checked(tmp_path / "more")
    (store / "loop").symlink_to(".")
    followed = rmqctl("acquire", store, tmp_path / "followed", "--follow-links", "-o", "json")
    assert (followed.code, (tmp_path / "followed/data/store/outside/key").read_text()) == (4, "secret")
    assert [row["path"] for row in followed.document()["unreadable"]] == ["data/store/loop"]
    checked(tmp_path / "followed")


def test_a_log_outside_the_store(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    (store / "commitlog").rename(tmp_path / "log")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nstorePathCommitLog={tmp_path / 'log'}\n")
    assert rmqctl("acquire", store, dest, "--broker-conf", conf).code == 0
    assert contents(dest / "data/log-1") == contents(tmp_path / "log")
    inside = rmqctl("acquire", store, tmp_path / "log" / "bag", "--broker-conf", conf)
    assert (inside.code, "inside the store" in inside.err) == (2, True)


def test_what_cannot_be_read_is_named(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    (store / "big").write_bytes(os.urandom(3 * MIB))
    (store / "huge").touch()
    os.truncate(store / "huge", 2**42 + 1)
    real_open, real_read = Storage.open, Storage.read_into

    def opening(self: Storage, path: Path) -> int:
        if path == store / "checkpoint":
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(self, path)

    def reading(self: Storage, descriptor: int, position: int, buffer: memoryview) -> int:
        if path_of(descriptor) == store / "big":
            bad = (MIB + 100) // 4096 * 4096
            if bad <= position < bad + 8192:
                raise OSError(5, "Input/output error")
            if position < bad:
                buffer = buffer[: bad - position]
        return real_read(self, descriptor, position, buffer)

    replace_open(monkeypatch, opening)
    monkeypatch.setattr(Storage, "read_into", reading)
    result = rmqctl("acquire", store, dest, "-o", "json")
    assert result.code == 4
    found = {row["path"].removeprefix("data/store/"): row for row in result.document()["unreadable"]}
    assert found.keys() == {"checkpoint", "big", "huge"}
    assert found["checkpoint"]["detail"] == "Permission denied"
    assert found["big"]["ranges"] == [{"begin": MIB, "end": MIB + 8192}]
    copy, original = (dest / "data/store/big").read_bytes(), (store / "big").read_bytes()
    assert copy == original[:MIB] + bytes(8192) + original[MIB + 8192 :]
    checked(dest)


def test_a_file_that_changes_while_it_is_read_is_named(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a mapping, which leaves the time as it is in some file systems, where a broker has the lock."""
    store, dest = golden("broker-497"), tmp_path / "bag"
    grows, mapped = store / "commitlog" / LOG, store / "config" / "topics.json"
    (store / "empty").touch()
    real = Storage.read_into
    with mapped.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:

        def reading(self: Storage, descriptor: int, position: int, buffer: memoryview) -> int:
            count = real(self, descriptor, position, buffer)
            path = path_of(descriptor)
            if path == grows:
                with grows.open("ab") as log:
                    log.write(b"more")
            if path == mapped:
                times = mapped.stat()
                mapping[10] ^= 1
                os.utime(mapped, ns=(times.st_atime_ns, times.st_mtime_ns))
            return count

        monkeypatch.setattr(Storage, "read_into", reading)
        with lock_held(store):
            result = rmqctl("acquire", store, dest, "-o", "json")
    assert result.code == 4
    assert {row["path"] for row in result.document()["changed"]} == {
        f"data/store/commitlog/{LOG}",
        "data/store/config/topics.json",
    }
    checked(dest)
    assert rmqctl("attest", dest).code == 0


def test_a_file_that_is_cut_while_it_is_read(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    (store / "cut").write_bytes(os.urandom(10 * MIB))
    real = Storage.read_into

    def reading(self: Storage, descriptor: int, position: int, buffer: memoryview) -> int:
        if path_of(descriptor) == store / "cut" and position:
            os.truncate(store / "cut", 5 * MIB)
        return real(self, descriptor, position, buffer)

    monkeypatch.setattr(Storage, "read_into", reading)
    result = rmqctl("acquire", store, dest, "-o", "json")
    assert (result.code, result.document()["changed"]) == (4, [{"path": "data/store/cut"}])
    assert rows_of(dest)["data/store/cut"]["holes"] == [[5 * MIB, 10 * MIB]]
    checked(dest)


def test_a_place_that_is_not_free(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, other = golden("broker-497"), tmp_path / "other"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    before = tree_hash(store)
    for dest in (store / "bag", store, tmp_path / "full", store / "commitlog" / ".." / "bag"):
        assert rmqctl("acquire", store, dest).code == 2
        assert rmqctl("acquire", store, dest, "--resume").code == 2
    (tmp_path / "link").symlink_to(store)
    assert rmqctl("acquire", store, tmp_path / "link" / "bag").code == 2
    assert rmqctl("acquire", store, "s3://bucket/bag").code == 2
    assert tree_hash(store) == before
    subprocess.run(["cp", "-a", store, other], check=True)
    assert rmqctl("acquire", store, tmp_path / "bag").code == 0
    assert rmqctl("acquire", store, tmp_path / "bag").code == 2
    assert "is a copy of" in rmqctl("acquire", other, tmp_path / "bag", "--resume").err
    assert rmqctl("acquire", store, tmp_path / "bag", "--resume").code == 0
    assert rmqctl("attest", tmp_path / "bag").code == 0
    assert rmqctl("acquire", tmp_path, tmp_path / "no").code == 10


def test_killed_and_resumed_it_has_the_same_manifest(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, chance = golden("broker-497"), random.Random(1)
    for number in range(6):
        (store / f"large{number}").write_bytes(chance.randbytes(3 * MIB))
    assert rmqctl("acquire", store, tmp_path / "whole").code == 0
    manifest = (tmp_path / "whole" / bag.MANIFEST).read_bytes()
    for attempt in range(3):
        dest = tmp_path / f"bag{attempt}"
        program = (
            "import sys; from rmqctl.cli.main import run; from rmqctl.operations.acquire import acquisition; "
            f"acquisition.BATCH_BYTES = {MIB}; sys.exit(run(sys.argv[1:]))"
        )
        words = ["acquire", str(store), str(dest), "--resume", "--max-bytes-per-second", "10MB"]
        kills = 0
        while True:
            with subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.DEVNULL) as process:
                try:
                    code = process.wait(0.4 + chance.random() * (1 + kills))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    continue
            assert code == 0
            break
        assert kills > 0
        assert (dest / bag.MANIFEST).read_bytes() == manifest
        checked(dest)
        assert rmqctl("attest", dest).code == 0


def test_stopped_at_any_call_it_goes_on(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each call that writes; a file that was only begun and is gone is no part of the bag."""
    store, dest = golden("326-basic"), tmp_path / "bag"
    assert rmqctl("acquire", store, tmp_path / "whole").code == 0
    manifest = (tmp_path / "whole" / bag.MANIFEST).read_bytes()
    monkeypatch.setattr(acquisition, "BATCH_BYTES", 1)
    left = 0

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(WritableStorage, name)

        def call(self: WritableStorage, *words: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(28, "No space left on device", str(dest))
            return real(self, *words)

        return call

    for name in ("make_file", "resize", "write", "sync", "replace_file", "add_folder", "set_stamp", "make_folder"):
        monkeypatch.setattr(WritableStorage, name, failing(name))
    code, steps = 4, 0
    while code:
        steps += 1
        left = steps - 1
        result = rmqctl("acquire", store, dest, "--resume")
        code = result.code
        assert code in (0, 4), result.err
        assert steps < 200
        if code and (dest / "data").exists() and not (dest / bag.TAG_MANIFEST).exists():
            (dest / "data" / f"begun{steps}").touch()
    assert steps > 5
    assert (dest / bag.MANIFEST).read_bytes() == manifest
    checked(dest)


def test_what_changed_since_is_copied_again(
    golden: Golden, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bag, "tag_files", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device", "x")))
        assert rmqctl("acquire", store, dest).code == 4
    (store / "checkpoint").write_bytes(b"\1" * 4096)
    (store / "abort").touch()
    opened: list[Path] = []
    real = Storage.open
    replace_open(monkeypatch, lambda self, path: opened.append(path) or real(self, path))  # type: ignore[func-returns-value]
    result = rmqctl("acquire", store, dest, "--resume")
    assert result.code == 0
    assert {path.name for path in opened if path.is_relative_to(store)} <= {"checkpoint", "abort", "lock"}
    assert contents(dest / "data/store") == contents(store)
    checked(dest)
    assert rmqctl("attest", dest).code == 0


def test_a_store_that_is_written(tmp_path: Path, rmqctl: Rmqctl) -> None:
    """Each message that a queue leads to is in the log, and what is torn is told."""
    store = tmp_path / "store"
    ended = threading.Event()
    copies: dict[Path, set[str]] = {}

    def copy() -> None:
        while not (store / "commitlog").is_dir() or not list((store / "commitlog").iterdir()):
            time.sleep(0.01)
        while not ended.is_set():
            dest = tmp_path / f"bag{len(copies)}"
            words = [sys.executable, "-m", "rmqctl", "acquire", str(store), str(dest), "-o", "json"]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
            changed = {row["path"].removeprefix("data/store/") for row in json.loads(done.stdout)["changed"]}
            copies[dest] = changed

    copier = threading.Thread(target=copy)
    copier.start()
    killed_while_writing(store, "async", 6)
    ended.set()
    copier.join()
    assert copies
    for dest, changed in copies.items():
        findings = rmqctl("verify", dest / "data/store", "-o", "json").document()["findings"]
        untold = [row for row in findings if row["path"] not in changed]
        assert {row["code"] for row in untold} <= OF_A_CRASH, (untold, changed)
        assert rmqctl("attest", dest).code == 0


def test_the_limit_of_bytes_a_second(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = golden("broker-497")
    (store / "large").write_bytes(os.urandom(4 * MIB))
    began = time.monotonic()
    assert rmqctl("acquire", store, tmp_path / "bag", "--max-bytes-per-second", "4MiB").code == 0
    assert 1.2 < time.monotonic() - began < 20


def test_a_signature(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    """DSSE: what is signed is the PAE; in-toto: the subject is the manifest."""
    store, dest, seen = golden("broker-497"), tmp_path / "bag", tmp_path / "seen"
    signer = (
        f"import sys; data = sys.stdin.buffer.read(); open({str(seen)!r}, 'wb').write(data); print('signed', end='')"
    )
    words = shlex.join([sys.executable, "-c", signer])
    failed = rmqctl("acquire", store, dest, "--sign", shlex.join([sys.executable, "-c", "raise SystemExit(3)"]))
    assert (failed.code, "ended with 3" in failed.err) == (4, True)
    assert rmqctl("acquire", store, dest, "--resume", "--sign", str(tmp_path / "none")).code == 4
    assert rmqctl("acquire", store, dest, "--resume", "--sign", words).code == 0
    envelope = json.loads((dest / bag.STATEMENT).read_text())
    payload = base64.b64decode(envelope["payload"])
    assert base64.b64decode(envelope["signatures"][0]["sig"]) == b"signed"
    assert seen.read_bytes() == b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    tags = {line[66:]: line[:64] for line in (dest / bag.TAG_MANIFEST).read_text().splitlines()}
    assert subjects == {name: tags[name] for name in (bag.MANIFEST, bag.FILES)}
    checked(dest)
    assert rmqctl("attest", dest).code == 0


def test_a_bag_is_not_changed(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, dest = golden("broker-497"), tmp_path / "bag"
    assert rmqctl("truncate", store, "--to", "763929", "--yes").code in (0, 3)
    assert rmqctl("acquire", store, dest).code == 0
    copy, before = dest / "data" / "store", tree_hash(dest)
    (tmp_path / "link").symlink_to(copy)
    for words in (
        "truncate STORE --to 99887 --yes", "rebuild STORE all --yes", "append STORE --topic T --body x",
        "clean STORE --manual --keep-files 1 --yes", "config restore STORE topics.json --from store --yes",
        "undo STORE --drop --yes", "config set-offset STORE billing orders --to earliest --yes",
        "checkpoint STORE set --physic-msg-timestamp 0 --yes", "truncate LINK --to 99887 --yes",
    ):  # fmt: skip
        line = [{"STORE": str(copy), "LINK": str(tmp_path / "link")}.get(word, word) for word in words.split()]
        result = rmqctl(*line)
        assert (result.code, "it is evidence" in result.err) == (4, True), (words, result.err)
        assert tree_hash(dest) == before, words
    assert f"(try {copy})" in rmqctl("info", dest).err
    assert f"{copy} COPY`" in rmqctl("doctor", copy).err
    shown = rmqctl("truncate", copy, "--to", "99887", "--dry-run")
    assert (shown.code, "would be refused" in shown.err) == (1, True)
    command = re.search("`(cp -a --sparse=always .*) COPY`", rmqctl("rebuild", copy, "all", "--yes").err)
    assert command is not None
    subprocess.run([*shlex.split(command[1]), str(tmp_path / "work")], check=True)
    assert rmqctl("truncate", tmp_path / "work", "--to", "99887", "--yes").code in (0, 3)
