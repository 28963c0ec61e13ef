"""The settings for the deletion of files in a store.

They are those of RocketMQ's CleanCommitLogService, and rmqctl's own `keep_bytes`, `keep_files` and
`protect_unconsumed`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from rmqctl.errors import BadRequest

if TYPE_CHECKING:
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.java_properties import JavaProperties

HOUR_MS = 3_600_000


class ExpirySettings(NamedTuple):
    """The settings for the deletion of files; times in ms, sizes in bytes.

    The defaults are the broker's. Beside a setting is its key in broker.conf.
    """

    reserved_ms: int = 72 * HOUR_MS  # fileReservedTime, hours
    delete_when: tuple[int, ...] = (4,)  # deleteWhen: hours of the broker host's local time
    max_disk_percent: float = 75.0  # diskMaxUsedSpaceRatio; brokers limit the value to 10 to 95
    force_percent: float = (
        85.0  # diskSpaceCleanForciblyRatio of 5.x; a system property of that name, 0 to 1, in all versions
    )
    warning_percent: float = 90.0  # diskSpaceWarningLevelRatio, as for force_percent
    clean_forcibly: bool = True  # cleanFileForciblyEnable
    batch: int = 10  # deleteFileBatchMax of 5.x: log files in one round; 10 before 5.x
    replicas_per_disk: int = 1  # replicasPerDiskPartition of 5.x
    logical_force_percent: float = 80.0  # logicalDiskSpaceCleanForciblyThreshold of 5.x, 0 to 1
    manual: bool = False
    """Delete expired files at any hour, in 20 rounds, as mqadmin's deleteExpiredCommitLog does."""
    keep_bytes: int | None = None
    """Delete the oldest log files, of any age, until the log has at most this number of bytes."""
    keep_files: int | None = None
    """Delete the oldest log files, of any age, until the log has at most this number of files."""
    by: Literal["mtime", "store-timestamp"] = "mtime"
    """The time from which a file's age is counted; brokers only use the mtime."""
    protect_unconsumed: bool = False
    """Keep files with messages that are not consumed yet, and all later files."""
    unused_topics: bool = False
    """Delete the whole folder of an empty queue if topics.json does not list the topic of the queue."""

    @property
    def hours_of_day(self) -> tuple[int, ...]:
        """Return the values of deleteWhen from 0 to 23; a broker ignores all others."""
        return tuple(hour for hour in self.delete_when if 0 <= hour < 24)


USUAL_EXPIRY = ExpirySettings()


def expiry_settings(said: JavaProperties) -> ExpirySettings:
    """Return the settings of broker.conf for the deletion of files, or the defaults.

    Raises BadRequest if a value is not valid.
    """

    def number(name: str, usual: float, least: int = 0) -> int:
        found = said.number(name, least=least)
        return int(usual) if found is None else found

    usual = USUAL_EXPIRY
    return ExpirySettings(
        reserved_ms=number("fileReservedTime", usual.reserved_ms // HOUR_MS) * HOUR_MS,
        delete_when=_hours(said),
        max_disk_percent=number("diskMaxUsedSpaceRatio", usual.max_disk_percent),
        force_percent=number("diskSpaceCleanForciblyRatio", usual.force_percent),
        warning_percent=number("diskSpaceWarningLevelRatio", usual.warning_percent),
        clean_forcibly=said.flag("cleanFileForciblyEnable") is not False,
        batch=number("deleteFileBatchMax", usual.batch),
        replicas_per_disk=number("replicasPerDiskPartition", usual.replicas_per_disk),
        logical_force_percent=_percent(said, "logicalDiskSpaceCleanForciblyThreshold", usual.logical_force_percent),
    )


def known_to(profile: Profile, said: ExpirySettings) -> ExpirySettings:
    """Return the settings that a broker of `profile` uses.

    Brokers of 4.x do not read the keys of `batch`, `force_percent` and `warning_percent`, and use the default values.
    """
    if profile.force_level_asks:
        return said
    usual = USUAL_EXPIRY
    return said._replace(batch=usual.batch, force_percent=usual.force_percent, warning_percent=usual.warning_percent)


def parse_hours(text: str) -> tuple[int, ...]:
    """Return the hours in a deleteWhen text, such as `04` or `04;05`.

    Raises ValueError for another form, for example with spaces or commas. With such a deleteWhen, a broker never
    deletes a file.
    """
    words = text.split(";")
    while words and not words[-1]:
        words.pop()  # as Java's split does
    if not words or not all(re.fullmatch(r"[+-]?[0-9]{1,9}", word) for word in words):
        raise ValueError(f"{text!r} is no hour, nor hours with semicolons between them, such as 04;05")
    return tuple(map(int, words))


def _hours(said: JavaProperties) -> tuple[int, ...]:
    text = said.text("deleteWhen")
    if not text:
        return USUAL_EXPIRY.delete_when
    try:
        return parse_hours(text)
    except ValueError as error:
        raise BadRequest(
            f"deleteWhen: {error}; a broker fails on it, and deletes nothing", path=str(said.path)
        ) from error


def _percent(said: JavaProperties, name: str, usual: float) -> float:
    """Return a fraction from broker.conf in percent, 0.8 as 80; `usual` if not set.

    Raises BadRequest if the value is not a fraction.
    """
    text = said.text(name)
    if not text:
        return usual
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", text):
        raise BadRequest(f"{name}={text!r} is not a fraction", path=str(said.path))
    return float(text) * 100
