"""Files and folders that could not be made are made the next time, durably, and leave no descriptor behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.logfile.writable_storage import WritableStorage
from tests.faulty_system import Fault, every_fault, open_descriptors


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.IO_ERROR])
def test_what_could_not_be_made_is_made_the_next_time(fault: Fault, tmp_path: Path) -> None:
    before = open_descriptors()
    for system in every_fault(tmp_path, fault):
        system.root.mkdir()
        storage = WritableStorage(system.root)
        path = system.root / "topic" / "0" / "file"
        with system:
            try:
                descriptor = storage.create(path, 1000)
            except OSError:
                descriptor = storage.create(path, 1000)
        storage.close(descriptor)
        assert open_descriptors() <= before
        left = tmp_path / f"left-{system.at}"
        system.after_power_failure(left)
        assert (left / "topic" / "0" / "file").read_bytes() == bytes(1000)
