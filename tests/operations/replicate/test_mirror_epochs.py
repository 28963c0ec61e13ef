"""The epochs of a copy: written with the log, and compared when the copy goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import NeedsRecovery, Unreadable
from rmqctl.operations.replicate.mirror_epochs import MirrorEpochs
from rmqctl.store.ha.auto_switch_frames import EpochEntry
from rmqctl.store.ha.epoch_file import decode_epoch_file, encode_epochs

EPOCHS = [EpochEntry(1, 0), EpochEntry(2, 500), EpochEntry(3, 900)]


def test_only_epochs_that_the_log_has_are_written(tmp_path: Path) -> None:
    epochs, file = MirrorEpochs(tmp_path), tmp_path / "epochFileCheckpoint"
    epochs.write(EPOCHS, 0)
    assert not file.exists()
    epochs.write(EPOCHS, 900)
    assert decode_epoch_file(file.read_bytes()) == EPOCHS[:2]
    epochs.write(EPOCHS, 901)
    assert decode_epoch_file(file.read_bytes()) == EPOCHS


def test_a_log_of_another_epoch_is_another_log(tmp_path: Path) -> None:
    epochs = MirrorEpochs(tmp_path)
    epochs.check(EPOCHS, "master")
    epochs.write(EPOCHS, 800)
    epochs.check(EPOCHS[1:], "master")
    with pytest.raises(NeedsRecovery, match="epoch 2 from offset 500, which master lacks"):
        epochs.check([EpochEntry(1, 0), EpochEntry(2, 400)], "master")
    (tmp_path / "epochFileCheckpoint").write_text("garbage")
    with pytest.raises(Unreadable, match="epochFileCheckpoint is not valid"):
        epochs.check(EPOCHS, "master")
    (tmp_path / "epochFileCheckpoint.bak").write_bytes(encode_epochs(EPOCHS[:2]))
    epochs.check(EPOCHS, "master")
