"""What stands beside the log: abort, checkpoint, configuration, offsets, and a log whose start is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.cli.main import run
from rmqctl.forensics.audit.state_audit import audit_config
from rmqctl.forensics.catalogue.catalogue import CATALOGUE
from rmqctl.forensics.verify import LEVEL_QUEUES, Verification, verify
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.clean_config import ExpirySettings
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import GOLDEN_NAMES, Golden, Rmqctl, expected
from tests.support.databases import Rows, pop_row, write_database
from tests.support.file_edits import FIRST_FILE, LOG_FILE_SIZE, peek, poke
from tests.support.lock_holder import lock_held
from tests.support.verified_by_tasks import Said, notes, said

HOUR_MS = 3_600_000
PHYSIC, LOGICS, INDEX = 0, 8, 16


@pytest.fixture
def broker(golden: Golden) -> Path:
    return golden("broker-497")


def set_config(root: Path, name: str, old: str, new: str) -> None:
    """Change a config file in the dialect that it is written in."""
    path = root / "config" / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


# --- popped messages


@pytest.mark.parametrize("rows", [dict([pop_row("g", "T", 0, 3, 1000, 500)]), {}])
def test_a_database_of_pop_that_cannot_be_opened(rows: Rows, basic: Path, rmqctl: Rmqctl) -> None:
    """5.5.0 with popConsumerKVServiceInit then ends: PopConsumerStore init error."""
    write_database(basic / "kvStore", {"popState": rows})
    assert said(basic) == set()
    (basic / "kvStore" / "CURRENT").write_text("MANIFEST-X")
    assert said(basic) == {Said("unreadable", "kvStore")}
    assert f"next: rmqctl verify {basic}" in rmqctl("doctor", basic).out  # recover does not mend it


# --- abort


def test_abort_without_a_broker(basic: Path) -> None:
    (basic / "abort").touch()
    assert said(basic) == {Said("abort", "abort")}


@pytest.fixture
def running(basic: Path) -> Iterator[int]:
    """A process that holds the store's lock, as a broker does."""
    with lock_held(basic) as pid:
        yield pid


def test_abort_that_is_a_folder(basic: Path) -> None:
    """For a broker it exists, too: new File(abort).exists()."""
    (basic / "abort").mkdir()
    assert said(basic) == {Said("foreign-file", "abort"), Said("abort", "abort")}


def test_abort_of_a_running_broker_is_a_note(basic: Path, running: int) -> None:
    (basic / "abort").touch()
    assert said(basic) == set()
    assert [note for note in notes(basic) if f"pid {running}" in note]


# --- checkpoint


def test_no_checkpoint(basic: Path) -> None:
    (basic / "checkpoint").unlink()
    assert said(basic) == {Said("checkpoint-missing", "checkpoint")}


@pytest.mark.parametrize("size", [0, 24, 39])
def test_a_checkpoint_that_is_too_short(basic: Path, size: int) -> None:
    (basic / "checkpoint").write_bytes((basic / "checkpoint").read_bytes()[:size])
    assert said(basic) == {Said("checkpoint-missing", "checkpoint")}


def test_a_zero_checkpoint_after_a_shutdown_in_order(basic: Path) -> None:
    poke(basic / "checkpoint", PHYSIC, "qqq", 0, 0, 0)
    assert said(basic) == {Said("checkpoint-behind", "checkpoint", 0)}


def test_a_zero_checkpoint_after_a_crash_is_usual(basic: Path) -> None:
    poke(basic / "checkpoint", PHYSIC, "qqq", 0, 0, 0)
    (basic / "abort").touch()
    assert said(basic) == {Said("abort", "abort")}


@pytest.mark.parametrize(("behind", "found"), [(60_000, set()), (60_001, {Said("checkpoint-behind", "checkpoint", 0)})])
def test_how_far_a_checkpoint_may_be_behind(basic: Path, behind: int, found: set[Said]) -> None:
    newest = max(message["storeTimestamp"] for message in expected("497-basic")["messages"])
    poke(basic / "checkpoint", PHYSIC, "qq", newest - behind, newest - behind)
    assert said(basic) == found


@pytest.mark.parametrize("field", [PHYSIC, LOGICS, INDEX])
@pytest.mark.parametrize(("ahead", "is_found"), [(3000, False), (3001, True), (HOUR_MS, True), (1 << 40, True)])
def test_a_time_of_the_checkpoint_that_is_ahead(basic: Path, field: int, ahead: int, is_found: bool) -> None:
    newest = max(message["storeTimestamp"] for message in expected("497-basic")["messages"])
    poke(basic / "checkpoint", field, "q", newest + ahead)
    assert said(basic) == ({Said("checkpoint-ahead", "checkpoint", field)} if is_found else set())


@pytest.mark.parametrize("field", [PHYSIC, LOGICS, INDEX])
def test_a_time_of_the_checkpoint_that_is_negative(basic: Path, field: int) -> None:
    poke(basic / "checkpoint", field, "q", -1)
    assert said(basic) == {Said("checkpoint-ahead", "checkpoint", field)}


# --- config


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b'{"offsetTable":'])
def test_a_bad_config_file_whose_bak_is_good(broker: Path, content: bytes) -> None:
    (broker / "config/consumerOffset.json").write_bytes(content)
    (finding,) = verify(ReadOnlyStore(broker)).findings
    assert (finding.code, finding.path) == ("config-invalid", "config/consumerOffset.json")
    assert ".bak is good" in finding.detail


@pytest.mark.parametrize(
    "name", ["topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "consumerFilter.json"]
)
def test_a_bad_config_file_whose_bak_is_bad_too(broker: Path, name: str) -> None:
    (broker / "config" / name).write_bytes(b"{")
    (broker / "config" / f"{name}.bak").write_bytes(b"{")
    (finding,) = verify(ReadOnlyStore(broker)).findings
    assert (finding.code, finding.path) == ("config-invalid", f"config/{name}")
    assert ".bak is good" not in finding.detail


def test_a_bad_bak_alone_does_not_matter(broker: Path) -> None:
    (broker / "config/consumerOffset.json.bak").write_bytes(b"{")
    assert said(broker) == set()


def test_a_config_folder_that_is_gone_is_an_empty_configuration(broker: Path) -> None:
    shutil.rmtree(broker / "config")
    assert said(broker) == set()


# --- offsets


@pytest.mark.parametrize(
    ("old", "new", "queue_id", "offset"),
    [
        ("0:375", "0:376", 0, 376),
        ("2:376", "2:1000000", 2, 1_000_000),
        ("3:375", "3:9223372036854775807", 3, 2**63 - 1),
    ],
)
def test_a_groups_offset_behind_the_end_of_its_queue(
    broker: Path, old: str, new: str, queue_id: int, offset: int
) -> None:
    set_config(broker, "consumerOffset.json", old, new)
    assert said(broker) == {Said("offset-beyond-queue", "config/consumerOffset.json", None, "orders", queue_id, offset)}


@pytest.mark.parametrize(("old", "new"), [("0:375", "0:374"), ("2:376", "2:0"), ("3:375", "3:375")])
def test_a_groups_offset_within_its_queue(broker: Path, old: str, new: str) -> None:
    set_config(broker, "consumerOffset.json", old, new)
    assert said(broker) == set()


def test_a_groups_offset_in_a_queue_that_is_not_there(broker: Path) -> None:
    set_config(broker, "consumerOffset.json", "0:375", "7:5,0:375")
    assert said(broker) == {Said("offset-beyond-queue", "config/consumerOffset.json", None, "orders", 7, 5)}


def test_an_offset_behind_a_queue_is_named_with_its_queue(broker: Path) -> None:
    set_config(broker, "consumerOffset.json", "0:375", "7:5,0:375")
    (finding,) = audit_config(ReadOnlyStore(broker))
    assert finding.detail == "billing is at 5 in orders/7, the queue ends at 0"


def test_a_groups_offset_zero_in_a_queue_that_is_not_there(broker: Path) -> None:
    set_config(broker, "consumerOffset.json", "0:375", "7:0,0:375")
    assert said(broker) == set()


@pytest.mark.parametrize(
    ("old", "new", "queue_id", "offset"), [("1:13", "1:14", 0, 14), ("2:13", "2:99", 1, 99), ("3:32", "3:33", 2, 33)]
)
def test_a_delay_level_behind_the_end_of_its_queue(
    broker: Path, old: str, new: str, queue_id: int, offset: int
) -> None:
    set_config(broker, "delayOffset.json", old, new)
    assert said(broker) == {
        Said("offset-beyond-queue", "config/delayOffset.json", None, "SCHEDULE_TOPIC_XXXX", queue_id, offset)
    }


def test_a_delay_level_and_its_queue_that_go_on_during_the_scan(broker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets are read after the scan, so the ends of the queues are read again."""
    real = Verification._check_log
    queue = next((broker / "consumequeue/SCHEDULE_TOPIC_XXXX/0").iterdir())

    def check_log(verification: Verification) -> None:
        real(verification)
        poke(queue, 13 * 20, "qiq", *peek(queue, 12 * 20, "qiq"))
        set_config(broker, "delayOffset.json", "1:13", "1:14")

    monkeypatch.setattr(Verification, "_check_log", check_log)
    assert run(["verify", str(broker)]) == 0


def test_a_delay_level_that_is_behind_is_usual(broker: Path) -> None:
    set_config(broker, "delayOffset.json", "3:32", "3:2")
    assert said(broker) == set()


def test_offsets_after_units_were_lost(broker: Path) -> None:
    poke(broker / f"consumequeue/orders/1/{6000:020d}", 70 * 20, f"{5 * 20}x")
    found = said(broker)
    assert {finding for finding in found if finding.code == "offset-beyond-queue"} == {
        Said("offset-beyond-queue", "config/consumerOffset.json", None, "orders", 1, 375)
    }
    assert {finding.code for finding in found} == {"offset-beyond-queue", "missing-unit"}


# --- the log's start


def test_a_lost_first_file_of_the_log(basic: Path) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    expired = sum(
        offset < LOG_FILE_SIZE for queue in expected("497-basic")["queues"] for _, offset, _ in queue["entries"]
    )
    (finding,) = verify(ReadOnlyStore(basic)).findings
    assert (finding.code, finding.path) == ("log-start-missing", f"commitlog/{LOG_FILE_SIZE:020d}")
    assert (finding.physical_offset, finding.size, finding.count) == (0, LOG_FILE_SIZE, expired)


@pytest.mark.parametrize(
    ("hours", "codes"), [("0", set()), ("1", {"log-start-missing"}), ("72", {"log-start-missing"})]
)
def test_how_long_messages_are_kept_says_the_broker_conf(
    basic: Path, tmp_path: Path, hours: str, codes: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"fileReservedTime={hours}\n")
    code = run(["verify", str(basic), "--broker-conf", str(conf), "-o", "csv"])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert {row.partition(",")[0] for row in rows} == codes
    assert code == (1 if codes else 0)


def test_a_lost_start_is_not_asked_for_at_level_2(basic: Path) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    assert said(basic, LEVEL_QUEUES) == set()


@pytest.mark.parametrize(("more", "codes"), [(0, set()), (1, {"log-start-missing"})])
def test_the_age_of_what_is_left_is_told_by_the_store_itself(basic: Path, more: int, codes: set[str]) -> None:
    (basic / "commitlog" / FIRST_FILE).unlink()
    left = [message for message in expected("497-basic")["messages"] if message["physicalOffset"] >= LOG_FILE_SIZE]
    first = min(left, key=lambda message: int(message["physicalOffset"]))
    age = max(message["storeTimestamp"] for message in left) - first["storeTimestamp"]
    assert age > 0
    assert {
        finding.code for finding in said(basic, conf=BrokerConf(expiry=ExpirySettings(reserved_ms=age + more)))
    } == codes


def test_a_log_that_is_missing_altogether(basic: Path) -> None:
    shutil.rmtree(basic / "commitlog")
    (basic / "commitlog").mkdir()
    found = said(basic)
    assert Said("log-missing", "commitlog") in found
    assert {finding.code for finding in found} <= {"log-missing", "dangling-unit", "index-dangling", "checkpoint-ahead"}


def test_a_store_without_queues_and_log_is_just_new(basic: Path) -> None:
    for name in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(basic / name)
    (basic / "commitlog").mkdir()
    poke(basic / "checkpoint", PHYSIC, "qqq", 0, 0, 0)
    assert said(basic) == set()


# --- the catalogue


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if "cqext" not in name])
def test_no_golden_store_has_more_than_its_abort(name: str, golden: Golden) -> None:
    root = golden(name)
    died = (root / "abort").exists()
    codes = {finding.code for finding in said(root)}
    assert ("abort" in codes) == died
    assert codes <= ({"abort", "missing-unit", "index-missing"} if died else set())


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_code_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", code]) == 0
    assert CATALOGUE[code].meaning.split(":")[0][:40] in capsys.readouterr().out


def test_the_checkpoints_of_the_golden_store_are_what_the_tests_take_them_for(basic: Path) -> None:
    newest = max(message["storeTimestamp"] for message in expected("497-basic")["messages"])
    assert max(peek(basic / "checkpoint", PHYSIC, "qqq")) == newest
