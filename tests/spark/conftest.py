"""What is costly to start is started once for all tests: a Spark session in this process, a cluster, a
Connect server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.spark.session.session import Target, session
from tests.support import connect_server, spark_cluster
from tests.support.class_archive import with_archive
from tests.support.connect_server import ConnectServer
from tests.support.spark_cluster import Cluster
from tests.support.spark_process import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MANY = 300  # tests of Spark: then an archive of its classes pays


@pytest.fixture(scope="session", autouse=True)
def _jvms_start_quickly(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    are_many = sum(item.get_closest_marker("spark") is not None for item in request.session.items) >= MANY
    archive = tmp_path_factory.mktemp("classes") / "classes.jsa"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", with_archive(archive) if are_many else QUICK_JVM)
        yield
    archive.unlink(missing_ok=True)


# not 200 tasks for a few rows; nor Java that is compiled for each query: sessions of their own have that
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class SharedSession:
    """One session, begun by the first who asks; a job without --master finds it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def get(self) -> SparkSession:
        if self._spark is None:
            self._spark = self._stack.enter_context(session(Target(master="local[2]"), os.environ))
            for name, value in SETTINGS.items():
                self._spark.conf.set(name, value)
        return self._spark

    def end(self) -> None:
        self._stack.close()
        self._spark = None


@pytest.fixture(scope="session")
def shared_session(_jvms_start_quickly: None) -> Iterator[SharedSession]:
    shared = SharedSession()
    yield shared
    shared.end()


@pytest.fixture
def spark(shared_session: SharedSession) -> SparkSession:
    """A session that all tests share: to begin one costs seconds, and so does the first job in it."""
    return shared_session.get()


@pytest.fixture
def no_session(shared_session: SharedSession) -> None:
    """For a test that begins one of its own in this process: there is none."""
    shared_session.end()


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
