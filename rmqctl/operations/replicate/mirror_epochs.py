"""The epochs of a mirror (STORE/epochFileCheckpoint) in controller mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import NeedsRecovery, Unreadable
from rmqctl.logfile.system.storage import Kind
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.store.config import store_path
from rmqctl.store.ha.epoch_file import EPOCH_FILE_SIZE_MAX, decode_epoch_file, encode_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.store.ha.auto_switch_frames import EpochEntry


class MirrorEpochs:
    """The epochs of the mirror at `root`."""

    def __init__(self, root: Path) -> None:
        self._storage = WritableStorage(root)
        self._path = root / store_path.EPOCH_FILE
        self._written: list[EpochEntry] = []

    def check(self, epochs: list[EpochEntry], address: str) -> None:
        """Raise NeedsRecovery if the master lacks the mirror's last epoch.

        The mirror then has another log. Raises Unreadable if the mirror's file cannot be read.
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
        if self._storage.entry(self._path).kind is Kind.MISSING:
            return []
        try:
            return decode_epoch_file(self._storage.read_file(self._path, EPOCH_FILE_SIZE_MAX))
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}", path=str(self._path)) from error
        except ValueError as error:
            raise Unreadable(f"not a file of epochs: {error}", path=str(self._path)) from error
