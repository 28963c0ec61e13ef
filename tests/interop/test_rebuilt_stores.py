"""Stores whose queues and index rmqctl rebuilt, read by the real RocketMQ: it answers as on what brokers wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.main import run
from tests.conftest import unpack
from tests.interop.test_written_stores import real_answer
from tests.support.time_look_ups import assert_time_look_ups

pytestmark = pytest.mark.interop

STORES_OF = {
    "4.7.1": ["471-basic", "471-batch", "471-delay", "471-tx", "471-crash"],
    "4.9.7": ["497-basic", "497-delay", "497-lmq", "497-crash", "broker-497"],
    "5.3.3": ["533-basic", "533-lmq", "533-longtopic", "533-crash", "broker-533"],
}


@pytest.mark.parametrize(
    ("version", "name"), [(version, name) for version, names in STORES_OF.items() for name in names]
)
def test_the_real_store_answers_as_before(
    version: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offsets, units, messages, look-ups by key and by time; from the store as it lay there, and once more with
    `abort`.
    """
    root = unpack(name, tmp_path)
    made = tmp_path / "rebuilt"
    shutil.copytree(root, made)
    assert run(["rebuild", str(made), "all", "--yes"]) in (0, 3)  # 3: something differed
    capsys.readouterr()
    shutil.rmtree(made / ".rmqctl")
    for abort in (False, True):
        before = real_answer(root, version, name, abort=abort, start=abort)
        shutil.rmtree(tmp_path / f"copy-{abort}-{abort}")
        after = real_answer(made, version, name, abort=abort, start=abort)
        shutil.rmtree(tmp_path / f"copy-{abort}-{abort}")
        assert without_times(after, version) == without_times(before, version)
        assert_time_look_ups(made, after, version)
        assert after["load"] is True
        assert after["messages"]
        assert after["keyQueries"]


def without_times(answer: dict[str, Any], version: str) -> dict[str, Any]:
    """The answer; of 4.x without look-ups by time: it goes by when files were written last, which an archive does not
    keep exactly.
    """
    if version.startswith("5."):
        return answer
    return {
        **answer,
        "queues": [
            {name: value for name, value in queue.items() if not name.startswith("offset")}
            for queue in answer["queues"]
        ],
    }
