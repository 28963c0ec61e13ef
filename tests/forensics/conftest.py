from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Golden


@pytest.fixture
def basic(golden: Golden) -> Path:
    return golden("497-basic")
