"""Stores prepared in threads: in order, not all at once, and nothing left over."""

from __future__ import annotations

import threading

import click
import pytest

from rmqctl.cli.job.by_store.preparation import AT_ONCE, prepared

STORES = [f"store-{number}" for number in range(2 * AT_ONCE)]


@pytest.fixture(autouse=True)
def _context() -> object:
    with click.Context(click.Command("job")) as context:
        yield context


def nothing() -> None:
    pass


def test_all_in_order_and_some_ahead() -> None:
    begun: list[str] = []

    def prepare(store: str) -> str:
        assert click.get_current_context().info_name is None
        begun.append(store)
        return store.upper()

    with prepared(STORES, prepare, nothing) as result_of:
        assert result_of(STORES[0]) == "STORE-0"
        found = [result_of(store) for store in STORES[1:]]
    assert found == [store.upper() for store in STORES[1:]]
    assert sorted(begun) == sorted(STORES)


def test_at_most_so_many_wait() -> None:
    begun: list[str] = []
    with prepared(STORES, begun.append, nothing) as result_of:
        result_of(STORES[0])
        result_of(STORES[1])
    assert len(begun) <= AT_ONCE + 1


def test_an_error_is_that_of_its_store() -> None:
    def prepare(store: str) -> str:
        if store == "bad":
            raise FileNotFoundError(store)
        return store

    with prepared(["good", "bad", "other"], prepare, nothing) as result_of:
        assert result_of("good") == "good"
        with pytest.raises(FileNotFoundError, match="bad"):
            result_of("bad")
        assert result_of("other") == "other"


def test_the_end_stops_threads_and_discards_results() -> None:
    stopped, ready = threading.Event(), threading.Event()
    discarded: list[str] = []

    def prepare(store: str) -> str:
        if store == "built":
            ready.set()
        if store == "slow":
            assert stopped.wait(60)
        if store == "bad":
            raise FileNotFoundError(store)
        return store

    with prepared(["first", "built", "slow", "bad"], prepare, stopped.set, discarded.append) as result_of:
        assert result_of("first") == "first"
        assert ready.wait(60)
    assert discarded == ["built", "slow"]


def test_a_single_store_needs_no_thread() -> None:
    with prepared(["one"], lambda _: threading.current_thread(), nothing) as result_of:
        assert result_of("one") is threading.current_thread()
