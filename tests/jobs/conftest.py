"""Places where jobs run that are costly to start: one of each for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.jobs import connect_server, spark_cluster
from tests.jobs.connect_server import ConnectServer
from tests.jobs.spark_cluster import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone cluster: a master and two workers."""
    with spark_cluster.started(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server."""
    with connect_server.started(tmp_path_factory.mktemp("connect")) as running:
        yield running


def without_seconds(document: dict[str, Any]) -> dict[str, Any]:
    """What must not differ between two runs."""
    return {key: value for key, value in document.items() if key != "seconds"}
