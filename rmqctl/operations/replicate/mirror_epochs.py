"""The epochs of a mirror in controller mode, kept in STORE/epochFileCheckpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import NeedsRecovery, Unreadable
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config import store_path
from rmqctl.store.ha.controller_files import read_epochs
from rmqctl.store.ha.epoch_file import encode_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.store.ha.auto_switch_frames import EpochEntry


class MirrorEpochs:
    """The epochs of the mirror at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._storage = WritableStorage(root)
        self._path = root / store_path.EPOCH_FILE
        self._written: list[EpochEntry] = []

    def check(self, epochs: list[EpochEntry], address: str) -> None:
        """Raise NeedsRecovery if the master lacks the mirror's last epoch.

        Mirror and master then have different logs. Raises Unreadable if the mirror's file and its `.bak` cannot be
        read.
        """
        own = self._read()
        if own and own[-1] not in epochs:
            what = (
                f"the mirror ends with epoch {own[-1].epoch} from offset {own[-1].start_offset}, which {address} lacks"
            )
            raise NeedsRecovery(f"{what}: these are different logs", hint="replicate into another STORE")

    def write(self, epochs: list[EpochEntry], end: int) -> None:
        """Write the epochs that begin before `end`, the end of the mirror.

        Unchanged epochs are not written again. Raises OSError.
        """
        found = [entry for entry in epochs if entry.start_offset < end]
        if found and found != self._written:
            self._storage.replace_file(self._path, encode_epochs(found))
            self._written = found

    def _read(self) -> list[EpochEntry]:
        epochs, problem = read_epochs(self._storage, self._root)
        if problem and not epochs:
            raise Unreadable(problem, path=str(self._root))
        return epochs
