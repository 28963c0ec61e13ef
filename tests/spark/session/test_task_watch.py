"""How far tasks are, told by a tracker of ours in place of Spark's."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rmqctl.spark.session.task_watch import watched

pytestmark = pytest.mark.spark  # for PySpark's errors

WAIT_SECONDS = 30


class Tracker:
    """Two stages under way, and one that ended since it was listed."""

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 -- Spark's name
        return [1, 2, 3]

    def getStageInfo(self, number: int) -> Any:  # noqa: N802 -- Spark's name
        return None if number == 3 else SimpleNamespace(numTasks=10 * number, numCompletedTasks=number)


def test_tasks_of_all_stages_are_told_once_while_nothing_changes() -> None:
    heard: list[tuple[int, int]] = []
    told = threading.Event()

    def tell(done: int, total: int) -> None:
        heard.append((done, total))
        told.set()

    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=Tracker))
    with watched(session, tell):
        assert told.wait(WAIT_SECONDS)
    assert heard == [(3, 30)]


def test_a_server_does_not_say() -> None:
    from pyspark.errors import PySparkAttributeError

    class Remote:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 -- Spark's name
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
            )

    heard: list[tuple[int, int]] = []
    remote: Any = Remote()
    with watched(remote, lambda done, total: heard.append((done, total))):
        assert "rmqctl-tasks" not in {thread.name for thread in threading.enumerate()}
    assert heard == []
