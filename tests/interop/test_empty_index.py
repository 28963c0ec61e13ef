"""An index file that a real broker made for messages without keys: it has no entry, and we fill it as
the broker would.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Rmqctl
from tests.interop.written_stores import PROFILE_OF
from tests.real_store.harness import Geometry, RealRocketMQ
from tests.support.log_maker import Record, write_log

pytestmark = pytest.mark.interop

SIZES = Geometry(65536, 50, 100, 400)


@pytest.mark.parametrize("version", PROFILE_OF)
def test_a_broker_finds_what_we_put_into_its_empty_index_file(version: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    root, broker = tmp_path / "s", RealRocketMQ(version)
    write_log(
        root,
        [Record(topic="T", queue_id=0, queue_offset=number, properties=b"") for number in range(3)],
        file_size=65536,
    )
    broker.read(root, start=True, geometry=SIZES)
    (path,) = (root / "index").iterdir()
    assert rmqctl("verify", root).out.startswith("level 3: no findings")
    assert rmqctl("append", root, "--topic", "T", "--queue", "0", "--keys", "k", "--body", "x").code == 0
    assert [entry.name for entry in (root / "index").iterdir()] == [path.name]
    (found,) = broker.ask(root, [("query", "T", "k", 10, 0, 2**62)], geometry=SIZES)
    assert len(found) == 1
    assert rmqctl("verify", root).out.startswith("level 3: no findings")
