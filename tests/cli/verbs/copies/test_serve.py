"""`rmqctl serve`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result, Rmqctl, schema_of
from tests.support.ha_slave import ReportingSlave
from tests.support.registered_slave import ConfiguredSlave

Golden = Callable[[str], Path]


@pytest.mark.parametrize("output", ["json", "table"])
def test_it_ends_when_a_slave_has_everything(output: str, golden: Golden) -> None:
    store = golden("broker-497")
    words = [sys.executable, "-m", "rmqctl", "serve", str(store), "--until-synced", "1", "-o", output]
    words += ["--progress", "json" if output == "json" else "auto"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if output == "json":
            listening = json.loads(first)
            schema_of("rmqctl.serve/1").validate(listening)
            assert (listening["event"], listening["maxPhyOffset"]) == ("listening", 832035)
            ha, remoting = listening["ha"], listening["remoting"]
        else:
            ha, remoting = (int(part.split()[-1]) for part in first.split(", ")[:2])
            assert "namesrvAddr=127.0.0.1:" in process.stdout.readline()
        with ReportingSlave(ha) as slave, ConfiguredSlave(remoting) as configured:
            slave.report(0)
            slave.follow(0, 832035)
            configured.take()
            out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    if output == "json":
        synced = json.loads(out)
        schema_of("rmqctl.serve/1").validate(synced)
        assert synced["slaves"][0]["maxPhyOffset"] == 832035
        assert json.loads(err.splitlines()[-1])["slaves"][0]["hasLog"] is True
    else:
        assert out.startswith("synced: 127.0.0.1:")
        assert "has the log, has the configuration" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--allow", "10.1.2.3/8"], "has host bits set; give a network such as"),
        (["--allow", "everyone"], "give a network such as"),
        (["--until-synced", "0"], "--until-synced"),
        (["--remoting-port", "2"], "2 is too small"),
        (["--listen", "192.0.2.1"], "--allow CIDR names the addresses"),
        (["--listen", "192.0.2.1", "--allow", "192.0.2.0/24"], "cannot listen on 192.0.2.1"),
    ],
)
def test_wrong_usage_is_told(words: list[str], what: str, golden: Golden, rmqctl: Rmqctl) -> None:
    result = rmqctl("serve", golden("broker-497"), *words)
    assert result.code == 2
    assert what in result.err


def replicated(rmqctl: Rmqctl, store: Path, new: Path) -> Result:
    """Copy from `serve` by `replicate`."""
    words = [sys.executable, "-m", "rmqctl", "serve", str(store), "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        listening = json.loads(process.stdout.readline())
        copied = rmqctl("replicate", f"127.0.0.1:{listening['remoting']}", new, "--once", "--yes", "-o", "json")
        process.terminate()
    assert process.returncode == 130
    return copied


def test_replicate_copies_from_serve_and_goes_on(golden: Golden, tmp_path: Path, rmqctl: Rmqctl) -> None:
    store, new, begin = golden("broker-533"), tmp_path / "new", tmp_path / "begin"
    shutil.copytree(store, begin)
    max((begin / "commitlog").iterdir()).unlink()
    for source in (begin, store, store):
        copied = replicated(rmqctl, source, new)
        assert copied.code == 0, copied.err
        end = rmqctl("info", source, "-o", "json").document()["commitLog"]["maxPhyOffset"]
        assert copied.document()["maxPhyOffset"] == end
    ahead = replicated(rmqctl, begin, new)
    assert ahead.code in (1, 4)
    assert ahead.err.count("\n") == 1


def test_what_is_no_store_is_told(tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert rmqctl("serve", tmp_path / "none").code == 10
