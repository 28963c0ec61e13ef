"""What rmqctl says of a broker's start is what the real store does: random damage, under eight versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.format.profile import profile_of
from tests.conftest import unpack
from tests.damage import many_files
from tests.damage.prediction import predict
from tests.interop.predict import LIKE_THE_BROKER, UNLIKE, compared, run, table
from tests.real_store.harness import Geometry, broker_conf
from tests.real_store.restarts import Restarts

pytestmark = pytest.mark.interop

SEED = "ci"
VERSIONS = ("4.5.2", "4.6.1", "4.7.1", "4.9.4", "5.0.0", "5.3.3", "5.4.0", "5.5.1")
CASES_A_VERSION = 25
UNDECIDED_SHARE = 0.05
SECONDS = 40
LOG_FILE = many_files.SIZES.commitlog_file_size


def test_a_start_comes_to_what_recover_says() -> None:
    numbers = {version: range(CASES_A_VERSION) for version in VERSIONS}
    verdicts = list(run(SEED, numbers, jobs=2))
    disagreements = [f"--seed {SEED} --only {it.start}: {it.why}" for it in verdicts if it.what == UNLIKE]
    assert not disagreements, "\n".join(disagreements)
    undecided = sum(verdict.what != LIKE_THE_BROKER for verdict in verdicts)
    assert undecided <= UNDECIDED_SHARE * len(verdicts), table(verdicts)


@pytest.mark.parametrize("has_abort", [False, True])
def test_5_5_0_serves_the_last_10_of_36_files_where_the_queues_are_gone(tmp_path: Path, has_abort: bool) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    many_files.write("540-36-files", root)
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").write_bytes(bytes(4096))
    if has_abort:
        (root / "abort").touch()
    conf.write_text(broker_conf(root, Geometry(LOG_FILE, 20, 50, 200), {}))
    prediction = predict(root, conf, profile_of("5.5.0"))
    with Restarts("5.5.0", SECONDS) as real:
        answer = real.ask(conf).result()
    assert min(offset for queue in answer["queues"] for offset in queue["places"][1::3]) == 26 * LOG_FILE
    assert not compared(prediction, answer)


@pytest.mark.parametrize("has_abort", [False, True])
def test_4_9_3_with_light_queues_stops_at_a_message_without_properties(tmp_path: Path, has_abort: bool) -> None:
    """In load(), or in start() again and again (checkMultiDispatchQueue)."""
    root, conf = unpack("432-crash", tmp_path), tmp_path / "broker.conf"
    shutil.rmtree(root / "consumequeue")
    if not has_abort:
        (root / "abort").unlink()
    conf.write_text(broker_conf(root, Geometry(65536, 50, 100, 400), {"enableMultiDispatch": "true"}))
    prediction = predict(root, conf, profile_of("4.9.3"))
    assert ("refused" if has_abort else "hangs") in prediction.restart
    with Restarts("4.9.3", SECONDS) as real:
        assert not compared(prediction, real.ask(conf).result())
