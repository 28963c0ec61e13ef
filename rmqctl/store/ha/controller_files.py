"""Read the files of a broker with a controller (5.x), as the broker does.

| file | content |
|---|---|
| epochFileCheckpoint | the epochs of the log (`rmqctl.store.ha.epoch_file`) |
| brokerIdentity | CLUSTER#BROKER#ID |

If epochFileCheckpoint is not valid, a broker reads its .bak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import BACKUP_SUFFIX
from rmqctl.store.config.store_path import BROKER_IDENTITY, EPOCH_FILE
from rmqctl.store.ha.epoch_file import EPOCH_FILE_SIZE_MAX, decode_epoch_file

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage
    from rmqctl.store.ha.auto_switch_frames import EpochEntry
    from rmqctl.store.read.read_only_store import ReadOnlyStore

IDENTITY_SIZE_MAX = 4096  # bytes


class BrokerIdentity(NamedTuple):
    """The cluster name, the broker name and the broker id in brokerIdentity."""

    cluster_name: str
    broker_name: str
    broker_id: int


class ControllerFiles(NamedTuple):
    """The content of epochFileCheckpoint and brokerIdentity."""

    epochs: list[EpochEntry]  # empty without a valid epochFileCheckpoint
    epochs_problem: str  # its fault; empty if it is valid or missing
    identity: BrokerIdentity | None  # None without a valid brokerIdentity
    identity_problem: str  # its fault; empty if it is valid or missing


def controller_files(store: ReadOnlyStore) -> ControllerFiles:
    """Return the content of the files of the controller mode.

    Without a controller, all fields are empty or None.
    """
    return ControllerFiles(*read_epochs(store.storage, store.path.root), *_identity(store))


def read_epochs(storage: Storage, root: Path) -> tuple[list[EpochEntry], str]:
    """Return the epochs of a store, and the fault of epochFileCheckpoint."""
    epochs, problem = _epochs(storage, root / EPOCH_FILE)
    if problem:
        epochs, backup_problem = _epochs(storage, root / (EPOCH_FILE + BACKUP_SUFFIX))
        problem += "; its .bak is good" if epochs and not backup_problem else ""
    return epochs, problem


def _epochs(storage: Storage, path: Path) -> tuple[list[EpochEntry], str]:
    content, problem = _content(storage, path, EPOCH_FILE_SIZE_MAX)
    if content is None:
        return [], problem
    try:
        return decode_epoch_file(content), ""
    except ValueError as error:
        return [], f"{path.name} is not valid: {error}"


def _identity(store: ReadOnlyStore) -> tuple[BrokerIdentity | None, str]:
    content, problem = _content(store.storage, store.path.part(BROKER_IDENTITY), IDENTITY_SIZE_MAX)
    if content is None:
        return None, problem
    try:
        cluster, broker, number = content.decode().split("#")
        return BrokerIdentity(cluster, broker, int(number)), ""
    except ValueError:
        return None, f"{BROKER_IDENTITY} is not CLUSTER#BROKER#ID"


def _content(storage: Storage, path: Path, size_max: int) -> tuple[bytes | None, str]:
    """Return the content of a file, or None and why not; "" if it does not exist."""
    try:
        if storage.entry(path).kind is Kind.MISSING:
            return None, ""
        return storage.read_file(path, size_max), ""
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror}"
