"""The command line's contract: exit codes, one line on stderr, streams, formats, safety of a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.cli.main import VERBS
from rmqctl.cli.main import rmqctl as group
from rmqctl.cli.shared.times import parse_time
from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode
from rmqctl.forensics.catalogue.catalogue import CATALOGUE, TERMS
from rmqctl.logfile.system.storage import Storage
from rmqctl.store.config import store_path
from tests.conftest import Rmqctl, tree_hash
from tests.support.listed_folders import watch_listings
from tests.support.log_maker import Record, encode, write_log
from tests.support.opened_files import replace_open
from tests.support.sparse_log import FILES, GIB, watch_reads, write_sparse_log

Golden = Callable[[str], Path]
STORE_VERBS = (
    ("info",),
    ("verify",),
    ("dump",),
    ("queue",),
    ("query", "--unique-key", "x"),
    ("lag",),
    ("trace", "--unique-key", "x"),
    ("config", "show"),
    ("checkpoint",),
    ("undo",),
    ("clean", "--dry-run"),
    ("heal", "--dry-run"),
    ("erase", "--key", "x", "--dry-run"),
    ("preflight", "--to", "5.5.0"),
)


def arguments_for(verb: tuple[str, ...], store: Path) -> list[str]:
    words = 2 if verb[0] == "config" else 1
    return [*verb[:words], str(store), *verb[words:]]


@pytest.mark.parametrize("verb", STORE_VERBS, ids=lambda verb: verb[0])
class TestWhatIsNoStore:
    def one_line(self, rmqctl: Rmqctl, verb: tuple[str, ...], path: Path, code: int) -> str:
        result = rmqctl(*arguments_for(verb, path))
        assert (result.code, result.out) == (code, "")
        assert result.err.count("\n") == 1
        assert result.err.startswith("rmqctl: ")
        return result.err

    def test_missing(self, verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
        assert "no such folder" in self.one_line(rmqctl, verb, tmp_path / "nowhere", 10)

    def test_a_file(self, verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
        (tmp_path / "file").write_bytes(b"x")
        assert "a store is a folder" in self.one_line(rmqctl, verb, tmp_path / "file", 10)

    def test_an_empty_folder(self, verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
        assert "is empty" in self.one_line(rmqctl, verb, tmp_path, 10)

    def test_the_folder_above(self, verb: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
        store = golden("326-basic")
        assert f"try {store}" in self.one_line(rmqctl, verb, store.parent, 10)

    def test_a_part_of_a_store(self, verb: tuple[str, ...], golden: Golden, rmqctl: Rmqctl) -> None:
        store = golden("326-basic")
        for part in ("commitlog", "consumequeue", "config/topics.json"):
            assert f"try {store}" in self.one_line(rmqctl, verb, store / part, 10)

    def test_unreadable(
        self, verb: tuple[str, ...], golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = golden("326-basic")

        def closed(_: Storage, folder: Path) -> list[object]:
            raise PermissionError(13, "Permission denied", str(folder))

        monkeypatch.setattr(Storage, "listing", closed)
        assert "Permission denied" in self.one_line(rmqctl, verb, store, 4)

    def test_rocksdb_without_its_extra(
        self, verb: tuple[str, ...], golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
        if verb[0] in ("info", "dump", "trace"):  # the log is all that these need
            assert "RocksDB" in rmqctl(verb[0], golden("broker-533-rocksdb"), *verb[1:]).err
        else:
            assert "RocksDB" in self.one_line(rmqctl, verb, golden("broker-533-rocksdb"), 13)

    def test_dledger(self, verb: tuple[str, ...], tmp_path: Path, rmqctl: Rmqctl) -> None:
        (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
        result = rmqctl(verb[0], tmp_path, *verb[1:])
        assert ("DLedger" in result.err) == (verb[0] not in ("config", "undo"))
        assert result.code in (0, 1, 2, 4, 10, 13)


def test_a_file_that_cannot_be_read_is_partial(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden("471-basic")
    real = Storage.open

    def failing(self: Storage, path: Path) -> int:
        if path.name == "00000000000000065536":
            raise PermissionError(13, "Permission denied", str(path))
        return real(self, path)

    replace_open(monkeypatch, failing)
    result = rmqctl("verify", store, "-o", "json")
    assert result.code == 4
    assert [finding["path"] for finding in result.document()["findings"] if finding["code"] == "unreadable"] == [
        "commitlog/00000000000000065536"
    ]
    trace = rmqctl("trace", store, "--key", "nonsense")
    assert (trace.code, "the readable part of the log [0, " in trace.out) == (4, True)
    dump = rmqctl("dump", store, "-o", "jsonl")
    assert dump.code == 4
    assert len(dump.rows()) == 300 - 77


@pytest.mark.parametrize("closed", ["consumequeue/orders", "consumequeue/orders/2"])
def test_a_closed_queue_folder_is_partial_in_every_verb(
    closed: str, golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what was not read taken for missing."""
    store = golden("broker-497")
    before = tree_hash(store)

    def refuse(folder: Path) -> None:
        if folder == store / closed:
            raise PermissionError(13, "Permission denied", str(folder))

    watch_listings(monkeypatch, refuse)
    found = rmqctl("verify", store, "-o", "json")
    assert (found.code, [(row["code"], row["path"]) for row in found.document()["findings"]]) == (
        4,
        [("unreadable", closed)],
    )
    for words in (
        "info STORE", "dump STORE --tail 1", "queue STORE", "lag STORE", "query STORE --topic orders --key c0",
        "config show STORE",
        ("query STORE --topic orders --queue 2 --offset "
        "0"), "queue STORE orders 2", "clean STORE --dry-run", "recover STORE --dry-run",
        "rebuild STORE all --dry-run", "truncate STORE --to 100000 --dry-run", "append STORE --topic T --body x",
    ):  # fmt: skip
        assert rmqctl(*(store if word == "STORE" else word for word in words.split())).code == 4, words
    assert tree_hash(store) == before


@pytest.mark.parametrize("part", ["consumequeue/OrderPaid/1/00000000000000000000", "index", "checkpoint"])
def test_other_files_that_cannot_be_read_are_partial_too(
    part: str, golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("471-basic")
    real = Storage.open

    def failing(self: Storage, path: Path) -> int:
        if str(path.relative_to(store)).startswith(part):
            raise OSError(5, "Input/output error", str(path))
        return real(self, path)

    replace_open(monkeypatch, failing)
    result = rmqctl("verify", store, "-o", "json")
    assert result.code == 4
    assert {finding["code"] for finding in result.document()["findings"]} == {"unreadable"}


def test_links_out_of_the_store_are_reported_and_not_followed(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("471-basic")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for part in ("commitlog", "index"):
        (store / part).rename(elsewhere / part)
        (store / part).symlink_to(elsewhere / part)
    result = rmqctl("verify", store, "-o", "json")
    assert result.code == 4
    links = {finding["path"] for finding in result.document()["findings"] if finding["code"] == "link-not-followed"}
    assert links == {"commitlog"}  # without a log nothing else is looked at
    assert result.document()["messages"] == 0
    assert rmqctl("verify", store, "--follow-links").code == 0
    assert rmqctl("info", store).code == 4


def test_a_single_linked_file_is_reported(golden: Golden, rmqctl: Rmqctl, tmp_path: Path) -> None:
    store = golden("471-basic")
    path = store / "commitlog" / "00000000000000065536"
    path.rename(tmp_path / "secret")
    path.symlink_to(tmp_path / "secret")
    document = rmqctl("verify", store, "-o", "json").document()
    assert "link-not-followed" in {finding["code"] for finding in document["findings"]}
    assert document["messages"] == 300 - 77


def test_nothing_raw_reaches_a_terminal_and_nothing_is_opened_outside(tmp_path: Path, rmqctl: Rmqctl) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202egnp\u115f\U000e0041"
    store = tmp_path / "a" / "b" / "store"
    records = [
        Record(topic="../../x", body=evil.encode(), properties=f"KEYS\x01{evil}\x02TAGS\x01{evil}\x02".encode()),
        Record(topic=evil[:20], queue_offset=0, body=b"\x1b[2J"),
    ]
    write_log(store, records, file_size=4096)
    (tmp_path / "a" / "x" / "1").mkdir(parents=True)
    (tmp_path / "a" / "x" / "1" / f"{0:020d}").write_bytes(bytes(1000))
    seen: list[Path] = []
    real = Storage.open

    def watching(self: Storage, path: Path) -> int:
        seen.append(path)
        return real(self, path)

    with pytest.MonkeyPatch.context() as patch:
        replace_open(patch, watching)
        for output in ("table", "json", "jsonl", "csv"):
            for arguments in (
                ("dump", store, "--body", "utf8"),
                ("verify", store),
                ("query", store, "--topic", "../../x", "--key", evil, "--scan"),
            ):
                result = rmqctl(*arguments, "-o", output)
                for text in (result.out, result.err):
                    assert not {character for character in text if ord(character) < 32 and character != "\n"}
                    assert not {"\x7f", "\x9b", "\u202e", "\u115f", "\U000e0041"} & set(text)
        for way in (("--key", evil), ("--key", evil, "-o", "json"), ("--key", evil, "--mermaid"), ("--key", "none")):
            shown = rmqctl("trace", store, *way).out
            assert not {character for character in shown if ord(character) < 32 and character != "\n"}
            assert not {"\x7f", "\x9b", "\u202e", "\u115f", "\U000e0041"} & set(shown)
        assert rmqctl("queue", store, "../../x", "1").code == 2
        assert rmqctl("query", store, "--topic", "../../x", "--queue", "1", "--offset", "0").code == 2
    assert seen
    assert all(path.resolve().is_relative_to(store.resolve()) for path in seen)
    rows = rmqctl("dump", store, "--body", "utf8", "-o", "jsonl").rows()
    assert rows[0]["body"] == evil
    assert rows[0]["topic"] == "../../x"


def test_a_csv_cell_is_no_formula_unless_raw(tmp_path: Path, rmqctl: Rmqctl) -> None:
    write_log(tmp_path, [Record(topic="=1+1", body=b"@sum", queue_id=-5)], file_size=4096)

    def cells(*words: str) -> list[str]:
        (row,) = csv.DictReader(io.StringIO(rmqctl("dump", tmp_path, "--body", "utf8", "-o", "csv", *words).out))
        return [row[name] for name in ("topic", "body", "queueId")]

    assert cells() == ["'=1+1", "'@sum", "-5"]
    assert cells("--raw") == ["=1+1", "@sum", "-5"]


def test_a_real_terminal_gets_nothing_raw(tmp_path: Path) -> None:
    write_log(tmp_path, [Record(topic="t\x1b]0;owned\x07", body=b"\x1b]0;owned\x07")], file_size=4096)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "rmqctl", "dump", str(tmp_path), "--body", "utf8"]
    process = subprocess.Popen(
        command, stdout=follower, stderr=follower, stdin=follower, env={**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    assert process.wait() == 0
    assert b"\x1b]0;" not in shown
    assert b"\x07" not in shown
    assert b"\\x1b]0;owned" in shown


@pytest.mark.parametrize("words", [("--help",), ("info", "STORE"), ("queue", "STORE"), ("config", "show", "STORE")])
def test_what_is_asked_often_imports_nothing_heavy(words: tuple[str, ...], golden: Golden) -> None:
    more = ("tabulate", "rmqctl.store", "rmqctl.forensics") if words == ("--help",) else ()
    heavy = ("numpy", "numba", "pyarrow", "pyspark", "rich", "crcmod", *more)
    line = [str(golden("326-basic")) if word == "STORE" else word for word in words]
    program = f"import sys; from rmqctl.cli.main import run; run({line!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in done.stderr.split() if name.startswith(heavy)]


def test_info_reads_little_of_a_thousand_large_files(
    tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = watch_reads(monkeypatch)
    document = rmqctl("info", write_sparse_log(tmp_path), "-o", "json").document()
    assert document["commitLog"]["maxPhyOffset"] == (FILES - 1) * GIB + len(encode(Record(), 0))
    assert len(read) < 100
    assert sum(read) < 16 * 2**20


def test_verify_needs_few_descriptors(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queues and files there are: the number of open files has a bound."""
    from rmqctl.logfile.system import storage

    monkeypatch.setattr(storage, "OPEN_FILES_MAX", 4)
    opened: set[int] = set()
    most = 0
    real_open, real_close = Storage.open, Storage.close

    def opening(self: Storage, path: Path) -> int:
        nonlocal most
        descriptor = real_open(self, path)
        opened.add(descriptor)
        most = max(most, len(opened))
        return descriptor

    def closing(self: Storage, descriptor: int) -> None:
        opened.discard(descriptor)
        real_close(self, descriptor)

    replace_open(monkeypatch, opening)
    monkeypatch.setattr(Storage, "close", closing)
    store = golden("broker-497")
    for arguments in (
        ("verify", store),
        ("config", "show", store),
        ("queue", store),
        ("info", store),
        ("dump", store, "--since", "-1h"),
    ):
        opened.clear()  # what the verb before left open goes with its process
        assert rmqctl(*arguments).code == 0
    assert 0 < most <= 6


def test_every_verbs_help_lists_its_exit_codes_and_examples(rmqctl: Rmqctl) -> None:
    assert {int(code) for code in EXIT_CODE_MEANINGS} == {int(code) for code in ExitCode}
    for name in VERBS.keys() - {"job"}:
        text = rmqctl(*(["config", "show"] if name == "config" else [name]), "--help").out
        assert "Exit status:" in text
        assert "Examples:" in text
        for code in (0, 2, 70, 130):
            assert f"\n  {code} " in text, name
    for code in EXIT_CODE_MEANINGS:
        assert f"\n  {int(code)} " in rmqctl("--help").out


def test_the_static_list_of_verbs_is_right() -> None:
    import click

    context = click.Context(group)
    for name, (_, text) in VERBS.items():
        command = group.get_command(context, name)
        assert command is not None
        assert isinstance(command, Verb | click.Group)
        assert text.endswith(".")


def test_an_unknown_verb_gets_a_suggestion(rmqctl: Rmqctl) -> None:
    result = rmqctl("verfy", "x")
    assert result.code == 2
    assert "Did you mean verify" in result.err


def test_every_finding_is_explained(golden: Golden, rmqctl: Rmqctl) -> None:
    for code in (*CATALOGUE, *TERMS, *map(int, ExitCode)):
        result = rmqctl("explain", code)
        assert result.code == 0
        assert "meaning" in result.out
    assert rmqctl("explain", "nonsense").code == 2
    assert all(code in rmqctl("explain").out for code in (*CATALOGUE, *TERMS))


def test_every_code_in_the_source_is_in_the_catalogue() -> None:
    import re

    import rmqctl

    root = Path(rmqctl.__file__).parent
    used = set()
    for path in (
        path
        for part in ("format", "logfile", "store", "operations", "forensics")
        for path in root.glob(f"{part}/**/*.py")
    ):
        text = path.read_text()
        made = r"(?:Damage|Finding|_foreign|_add|\.add|add_entries|add_missed|add_unit)\(\s*\"([a-z-]+)\""
        used |= set(re.findall(made, text))
        used |= set(re.findall(r"^[A-Z_]+ = \"([a-z-]+)\"  # the code of a (?:Damage|Finding)$", text, re.MULTILINE))
    assert used - {"outside-log"} <= set(CATALOGUE)
    assert set(CATALOGUE) - used <= {
        "unit-hole",
        "unit-behind-end",
        "file-gap",
        "file-overlap",
        "link-not-followed",
        "foreign-file",
    }


def test_csv_has_a_header_and_a_row_a_record(golden: Golden, rmqctl: Rmqctl) -> None:
    rows = list(csv.DictReader(io.StringIO(rmqctl("dump", golden("471-basic"), "-o", "csv").out)))
    assert len(rows) == 300
    assert rows[0]["physicalOffset"] == "0"
    assert json.loads(rows[0]["properties"])


def test_csv_keeps_the_columns_when_the_first_row_is_damaged(golden: Golden, rmqctl: Rmqctl) -> None:
    store = golden("471-basic")
    path = store / "commitlog" / f"{0:020d}"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    rows = list(csv.DictReader(io.StringIO(rmqctl("dump", store, "--damaged", "-o", "csv").out)))
    assert rows[0]["damage"] == "bad-magic"
    assert rows[1]["topic"]


def test_a_reader_that_goes_away_ends_quietly(golden: Golden) -> None:
    store = golden("broker-497")
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqctl", "dump", str(store), "-o", "jsonl", "--body", "hex"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


@pytest.mark.parametrize("arguments", [["--help"], ["verify", "--help"], ["job", "--help"]])
def test_a_reader_of_help_that_goes_away_ends_quietly(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(
        [sys.executable, "-m", "rmqctl", *arguments], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (found.returncode, found.stderr) == (141, b"")


def test_ctrl_c_is_130(golden: Golden) -> None:
    store = golden("326-basic")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "rmqctl", "dump", str(store), "--tail", "1", "--follow", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.decode().splitlines()[-1] == "rmqctl: interrupted"


def test_a_bug_is_one_line_and_70(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("rmqctl.forensics.survey.survey.survey", broken)
    result = rmqctl("info", golden("326-basic"))
    assert result.code == 70
    assert result.err.count("\n") == 1
    assert "--debug" in result.err
    with pytest.raises(ZeroDivisionError):
        rmqctl("--debug", "info", "x" if False else golden("326-basic"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed(shell: str, rmqctl: Rmqctl) -> None:
    result = rmqctl("completion", shell)
    assert result.code == 0
    assert "_RMQCTL_COMPLETE" in result.out


def test_progress_as_json(golden: Golden, rmqctl: Rmqctl) -> None:
    from rmqctl.store.read import commit_log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "PROGRESS_BYTES", 1)
        result = rmqctl("verify", golden("326-basic"), "--progress", "json")
    lines = [json.loads(line) for line in result.err.splitlines() if line.startswith("{")]
    assert lines[-1]["bytes"] == 254735
    assert lines[-1]["totalBytes"] == 4 * 65536


NOW = 1_795_255_200_000  # 2026-11-21T10:00:00Z


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1795252516848", 1795252516848),
        ("1795252516", 1795252516000),  # date +%s
        ("0", 0),
        ("2026-11-21T09:15:16.848Z", 1795252516848),
        ("2026-11-21T10:15:16.848+01:00", 1795252516848),
        ("-2h", NOW - 7_200_000),
        ("-90s", NOW - 90_000),
        ("now", NOW),
        ("yesterday", 1795132800000),
        ("today", 1795219200000),
        ("2026-11-21#09:15:16:848", 1795252516848),
        ("14:03", 1795219200000 + 50_580_000),
        ("Today 00:00:01", 1795219201000),
        ("yesterday 14:00", 1795132800000 + 50_400_000),
        ("last friday", 1795132800000),  # NOW is a Saturday
        ("last saturday 09:30:00.250", 1795219200000 - 7 * 86_400_000 + 34_200_250),
    ],
)
def test_times_as_operators_type_them(text: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert parse_time(text, NOW) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "soon", "last", "25:00", "yesterday 9", "2026-13-01", "-2x", "99999999999999999999999999"]
)
def test_what_is_no_time_is_usage(text: str, golden: Golden, rmqctl: Rmqctl) -> None:
    result = rmqctl("dump", golden("326-basic"), "--since", text)
    assert result.code in (0, 2)
    if not text.isdecimal():
        assert result.code == 2


@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_a_full_stdout_is_named(unbuffered: dict[str, str], golden: Golden) -> None:
    store = golden("broker-497")
    before = tree_hash(store)
    program = Path(sys.executable).with_name("rmqctl")
    for words, text in ((["info"], ""), (["dump", "-o", "jsonl"], ""), (["rebuild", "queues", "--yes"], "as it was")):
        line = [str(program), words[0], str(store), *words[1:]]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, env=os.environ | unbuffered, check=False)
        assert (done.returncode, tree_hash(store)) == (ExitCode.PARTIAL, before)
        assert "stdout: No space left on device" in done.stderr.decode()
        assert text in done.stderr.decode()


def test_closed_streams_are_no_bug(golden: Golden) -> None:
    store = golden("broker-497")
    before = tree_hash(store)
    program = Path(sys.executable).with_name("rmqctl")
    for closed in ("<&-", ">&-", "<&- >&- 2>&-"):
        line = f"{program} info {store} {closed} && {program} append {store} --from /dev/null {closed}"
        assert subprocess.run(["sh", "-c", line], capture_output=True, check=False).returncode == ExitCode.CLEAN, closed
    line = f"{program} append {store} --from - <&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, tree_hash(store)) == (ExitCode.USAGE, before)
    assert "stdin is closed" in done.stderr


def test_settings_of_numba_in_the_environment_do_not_reach_the_kernels() -> None:
    script = (
        "import os; from rmqctl.cli import main; "
        "main.run = lambda _: int(any(name.startswith('NUMBA_') for name in os.environ)); main.main()"
    )
    strange = {"NUMBA_DISABLE_JIT": "1", "NUMBA_DEBUG": "1", "NUMBA_CACHE_DIR": "/missing", "NUMBA_NUM_THREADS": "x"}
    assert subprocess.run([sys.executable, "-c", script], env=os.environ | strange, check=False).returncode == 0
