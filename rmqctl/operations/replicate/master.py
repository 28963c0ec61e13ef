"""The facts that `replicate` requests from a master before it pulls the log.

The HA protocol has no fields for a master's settings or the range of its log, so the broker's remoting port is asked:
request 26 returns the settings, and request 28 the first offset and the end offset of the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import BadRequest, LayoutNotSupported, PeerError
from rmqctl.format.index_entry import INDEX_ENTRY, INDEX_HEADER, SLOT_SIZE
from rmqctl.format.profile import PROFILE_4_7, PROFILE_4_9, PROFILE_5_3, PROFILE_5_4, Profile
from rmqctl.logfile.mapped_file_queue import JAVA_INT_MAX, OFFSET_MAX
from rmqctl.remoting.address import PORT_MAX
from rmqctl.store.config.broker_conf import BrokerConf, broker_conf_of
from rmqctl.store.config.file_sizes import geometry_of_conf
from rmqctl.store.config.java_properties import JavaProperties

if TYPE_CHECKING:
    from rmqctl.remoting.address import Address
    from rmqctl.remoting.broker_requests import BrokerRequests

SYNC_MASTER = "SYNC_MASTER"
OFFSET_DIGITS = 20
# the master's settings for the format of its files; the mirror does not take its paths and its other settings
_OF_FILES = (
    "mappedFileSizeCommitLog", "mapedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt", "mapperFileSizeBatchConsumeQueue", "enableConsumeQueueExt", "maxHashSlotNum",
    "maxIndexNum", "messageIndexEnable", "messageDelayLevel",
)  # fmt: skip
_SIGNS = {"storetype": "rocksdb", "enabledlegercommitlog": "true"}


class LogRange(NamedTuple):
    """The first offset and the end offset of the master's log, in bytes."""

    min_offset: int
    max_offset: int


class Master(NamedTuple):
    """The constant facts about a running master."""

    address: Address
    ha_port: int
    role: str
    version: str  # in the broker's notation, such as `V4_9_7`
    profile: Profile
    conf: BrokerConf  # settings for store files
    controller_mode: bool
    slave_timeout: float

    @property
    def file_size(self) -> int:
        """The size of a log file, in bytes."""
        return self.conf.commitlog_file_size or 1 << 30

    @property
    def longest_put(self) -> float:
        """The seconds that a put can wait for a slave.

        0 for a master that does not wait; for a SYNC_MASTER with a margin of 1 s.
        """
        return self.slave_timeout + 1 if self.role == SYNC_MASTER else 0.0

    @property
    def slows_down_for_mirrors(self) -> bool:
        """Whether a mirror without other slaves can make a put wait 3 s.

        A SYNC_MASTER of 4.x counts the mirror as a slave, and waits for an acknowledgement that it never sends. One of
        5.x waits for acknowledgements even if no mirror is connected.
        """
        return self.role == SYNC_MASTER and not self.profile.knows_long_topics


def ask_master(address: Address, requests: BrokerRequests) -> Master:
    """Ask a master for its settings and its version.

    Raises PeerError if the master does not answer, or if an answer lacks a needed value. Raises LayoutNotSupported if
    the master keeps its log in DLedger or its queues in RocksDB.
    """
    said = requests.broker_config()
    version = requests.runtime_info().get("brokerVersionDesc", "")
    lower = {key.lower(): value.lower() for key, value in said.items()}
    for sign, value in _SIGNS.items():
        if value in lower.get(sign, ""):
            what = f"the broker runs with {sign}={lower[sign]}: its log has no HA protocol, or its queues no files"
            raise LayoutNotSupported(what, path=str(address))
    try:
        conf = broker_conf_of(JavaProperties(Path(str(address)), {key: said[key] for key in _OF_FILES if key in said}))
    except BadRequest as error:
        raise PeerError(f"the broker's settings: {error.what}", path=str(address)) from error
    if conf.commitlog_file_size is None:
        raise PeerError("the broker does not say its mappedFileSizeCommitLog", path=str(address))
    _check_sizes(conf, address)
    return Master(
        address=address,
        ha_port=_number(said, "haListenPort", address, most=PORT_MAX),
        role=said.get("brokerRole", ""),
        version=version,
        profile=profile_of(version),
        conf=conf,
        controller_mode=lower.get("enablecontrollermode") == "true",
        slave_timeout=_number(said, "slaveTimeout", address, usual=3000, most=JAVA_INT_MAX) / 1000,
    )


def ask_range(address: Address, requests: BrokerRequests) -> LogRange:
    """Ask where the master's log begins and ends. Raises PeerError.

    A broker without log files sends the offset -1, which becomes 0.
    """
    said = {key: "0" if value == "-1" else value for key, value in requests.runtime_info().items()}
    found = LogRange(_number(said, "commitLogMinOffset", address), _number(said, "commitLogMaxOffset", address))
    if found.max_offset < found.min_offset:
        raise PeerError(
            f"the broker says that its log begins at {found.min_offset} and ends at {found.max_offset}",
            path=str(address),
        )
    return found


def profile_of(version: str) -> Profile:
    """Return the profile of a broker version such as `V4_9_7`.

    The newest one if the text is not a version.
    """
    words = version.upper().removeprefix("V").split("-")[0].split("_")
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdecimal())
    if not numbers or numbers >= (5, 4):
        return PROFILE_5_4
    if numbers >= (5,):
        return PROFILE_5_3
    return PROFILE_4_9 if numbers >= (4, 9, 1) else PROFILE_4_7


def _check_sizes(conf: BrokerConf, address: Address) -> None:
    # a broker maps a file as a whole; a larger file size is a PeerError
    sizes = geometry_of_conf(conf)
    index = INDEX_HEADER.size + SLOT_SIZE * sizes.index_slots + INDEX_ENTRY.size * sizes.index_entries
    for what, size in (
        ("log", sizes.commitlog_file_size),
        ("queues", sizes.consumequeue_file_size),
        ("extensions", sizes.consumequeue_ext_file_size),
        ("batch queues", sizes.batchconsumequeue_file_size),
        ("index", index),
    ):
        if size > JAVA_INT_MAX:  # a broker maps a file as a whole
            raise PeerError(
                f"the broker says files of {size} bytes for its {what}: no broker can map them", path=str(address)
            )


def _number(
    said: dict[str, str], key: str, address: Address, *, usual: int | None = None, most: int = OFFSET_MAX
) -> int:
    text = said.get(key, "" if usual is None else str(usual))
    if not (text.isascii() and text.isdecimal() and len(text) < OFFSET_DIGITS and int(text) <= most):
        raise PeerError(f"the broker says no number as its {key}: {text[:40]!r}", path=str(address))
    return int(text)
