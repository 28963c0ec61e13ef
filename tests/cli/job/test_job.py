"""`rmqctl job NAME` up to where Spark would begin: none of it runs here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.cli.job.job import JOBS
from rmqctl.store.config import store_path
from tests.conftest import Rmqctl

Golden = Callable[[str], Path]
NAMES = [name for name in JOBS if name not in ("verify", "doctor", "report", "rebuild")]


def words(name: str, *stores: Path) -> list[str]:
    """A command line of a job that asks `stores`."""
    before = {"sql": ["SELECT 1"]}.get(name, [])
    behind = {"export": ["--to", str(stores[0].parent / "exported")], "trace": ["--key", "k"]}.get(name, [])
    both = [stores[0], stores[0] / "commitlog"] if name == "diff" else stores
    return ["job", name, *before, *map(str, both), *behind]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_store_is_one_line(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    result = rmqctl(*words(name, tmp_path / "nowhere"))
    assert (result.code, result.out) == (10, "")
    assert result.err.splitlines() == [f"rmqctl: {tmp_path / 'nowhere'}: no such folder"]


@pytest.mark.parametrize("name", ["lag", "lost"])  # the others read the log alone
def test_rocksdb_without_its_extra(name: str, golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_path, "can_read_databases", lambda: False)
    result = rmqctl(*words(name, golden("broker-533-rocksdb")))
    assert (result.code, result.out, result.err.count("\n")) == (13, "", 1)


def test_one_of_many_is_missing(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("job", "stats", golden("533-basic"), tmp_path / "nowhere").code == 10


@pytest.mark.parametrize("name", JOBS)
def test_help(name: str, rmqctl: Rmqctl) -> None:
    text = rmqctl("job", name, "--help").out
    assert f"rmqctl job {name}" in text[text.index("Examples:") :]
    findings = () if name == "report" else (1,)  # report says on its page what it found
    for code in (0, *findings, 2, 4, 10, 13, 70, 130):
        assert f"\n  {code} " in text[text.index("Exit status:") :]


def test_a_master_or_a_server(golden: Golden, rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "stats", golden("533-basic"), "--master", "local", "--remote", "sc://here")
    assert result.code == 2
    assert "not both" in result.err


def test_without_pyspark(golden: Golden, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.cli.job.spark_options.find_spec", lambda _: None)
    result = rmqctl("job", "stats", golden("533-basic"))
    hint = f"install the extra `spark`: `{sys.executable} -m pip install 'rmqctl[spark]'`"
    assert (result.code, result.err) == (2, f"rmqctl: PySpark is not installed ({hint})\n")


def test_a_copy_and_itself(golden: Golden, rmqctl: Rmqctl) -> None:
    root = golden("533-basic")
    assert rmqctl("job", "diff", root, root / "..").code == 10
    assert rmqctl("job", "diff", root, root / ".." / "store").code == 2


@pytest.mark.parametrize("interval", ["0s", "2d", "25h", "1w", "x", "-1m", "99999999s", ""])
def test_what_is_no_interval(interval: str, golden: Golden, rmqctl: Rmqctl) -> None:
    result = rmqctl("job", "timeline", golden("533-basic"), f"--interval={interval}")
    assert (result.code, result.out) == (2, "")
    assert "is no interval: use 1s to 1d" in result.err


def test_export_writes_nothing_where_something_is(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root = golden("533-basic")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = sorted(path for path in tmp_path.rglob("*"))
    for target in (
        tmp_path / "full",
        tmp_path / "file",
        tmp_path / "link",
        tmp_path / "none" / "out",
        root / "out",
        root,
    ):
        result = rmqctl("job", "export", root, "--to", target)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_sql_says_what_a_query_may_do(rmqctl: Rmqctl) -> None:
    said = " ".join(rmqctl("job", "sql", "--help").out.split())
    assert (
        "can read any file that you can read, such as csv.`/etc/passwd`, and can call any Java method by reflect()"
        in said
    )
