"""Stores whose broker's clock went back: what doctor, info, lag and searches by time say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqctl.store.read import clock
from rmqctl.store.read.clock import ClockFall, ClockWatch, LogClock, time_at_end
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Result, Rmqctl, unpack
from tests.damage.pristine import records_of

HOUR_MS = 3_600_000


def shift(store: Path, by: Callable[[int], int]) -> list[int]:
    """Add `by(number)` ms to the store time of each record; return their physical offsets."""
    places: list[int] = []
    for path in sorted((store / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        for record in records_of(path.name, bytes(data)):
            field = record.fields["store-timestamp"]
            time = int.from_bytes(data[field.at : field.at + 8]) + by(len(places))
            data[field.at : field.at + 8] = time.to_bytes(8)
            places.append(int(path.name) + record.at)
        path.write_bytes(data)
    return places


def ages_of(lag: Result) -> dict[str, int | None]:
    """The age of the oldest unconsumed message of each group, in ms."""
    return {row["group"]: row["oldestAgeMs"] for row in lag.document()["groupTotals"]}


@pytest.mark.parametrize("small", [clock.SMALL, 0])
def test_all_that_counts_time_says_where_the_clock_went_back(
    small: int, tmp_path: Path, rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "SMALL", small)
    monkeypatch.setattr(clock, "STEP", 4096)
    store = unpack("broker-497", tmp_path)
    ages = ages_of(rmqctl("lag", store, "-o", "json"))
    at = shift(store, lambda number: -2 * HOUR_MS if number >= 300 else 0)[300]
    causes = {one["code"]: one for one in rmqctl("doctor", store, "-o", "json").document()["causes"]}
    cause = causes["clock-went-back"]
    assert cause["evidence"][0]["physicalOffset"] == at
    assert "the clock went back by 1 h 59 min" in cause["evidence"][0]["detail"]
    assert cause["next"] == f"rmqctl dump {store} --around {at}"
    (fall,) = rmqctl("info", store, "-o", "json").document()["commitLog"]["clockWentBack"]
    assert (fall["physicalOffset"], fall["fromTimestamp"] - fall["toTimestamp"] > HOUR_MS) == (at, True)
    lag = rmqctl("lag", store, "-o", "json")
    assert ages_of(lag) == pytest.approx(ages, abs=60_000)
    assert "ages are by the clock of the log's end" in lag.err
    time = fall["toTimestamp"] + 1000
    for queue_id in range(4):
        where = ("query", store, "--topic", "orders", "--queue", queue_id, "--at", time, "-o", "jsonl")
        assert rmqctl(*where).rows() == rmqctl(*where, "--scan").rows()
    since = rmqctl("dump", store, "--since", fall["fromTimestamp"], "-o", "jsonl").rows()
    assert {row["physicalOffset"] >= at for row in since} <= {False}
    assert since


def test_one_record_with_another_time_is_no_clock_that_went_back(tmp_path: Path, rmqctl: Rmqctl) -> None:
    store = unpack("broker-497", tmp_path)
    shift(store, lambda number: HOUR_MS * {100: -2, 300: 2}.get(number, 0))
    assert rmqctl("info", store, "-o", "json").document()["commitLog"]["clockWentBack"] == []
    assert "clock-went-back" not in {one["code"] for one in rmqctl("doctor", store, "-o", "json").document()["causes"]}


def test_falls_are_found_across_parts() -> None:
    times = np.array([5, 5, 5, 1, 1, 4, 4, 2, 2, 2, 9, 3, 3]) * HOUR_MS
    for size in (1, 2, 5, 13):
        watch = ClockWatch()
        for begin in range(0, len(times), size):
            watch.hear(range(begin, min(begin + size, len(times))), times[begin : begin + size])
            watch.falls()
        found = [(fall.physical_offset, fall.before // HOUR_MS, fall.after // HOUR_MS) for fall in watch.falls()]
        assert found == [(3, 5, 1), (7, 4, 2)], size


def test_the_time_at_the_end() -> None:
    falls = [ClockFall(100, 50, 20)]
    assert [time_at_end(falls, 0, time) for time in (10, 20, 45, 50)] == [10, 20, 15, 20]
    assert time_at_end(falls, 100, 45) == 45


def test_a_broker_with_a_right_clock_has_no_falls(tmp_path: Path) -> None:
    store = ReadOnlyStore(unpack("broker-533", tmp_path))
    assert LogClock(store.commit_log).falls == ()
    store.close()
