"""What a session leaves as it was."""

from __future__ import annotations

import os
import signal

import pytest

from rmqctl.jobs.session import Target, session

pytestmark = pytest.mark.spark


def test_ctrl_c_stays_ours(no_session: None) -> None:
    before = signal.getsignal(signal.SIGINT)
    with session(Target("local[1]"), os.environ) as spark:
        assert signal.getsignal(signal.SIGINT) is before
        assert spark.range(3).count() == 3
