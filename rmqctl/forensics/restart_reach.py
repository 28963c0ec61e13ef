"""Find out whether a broker reaches damage of the log if it restarts now.

This needs no second scan of the log. `rmqctl.store.recovery.rules` finds the file in which a broker's recovery begins:
damage before it has no effect. If the recovery reaches damage, the broker's checks decide whether it ends the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.damage_kinds import codes
from rmqctl.store.config.store_path import Layout

if TYPE_CHECKING:
    from rmqctl.format.message import Damage
    from rmqctl.format.profile import Profile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NEVER_MET = codes(is_read=False) | {"bytes-behind-end"}  # by a broker's scan


class RestartReach(NamedTuple):
    """The effect of damage to the log if the broker restarts now."""

    profile: str  # of the broker
    refused: str | None = None  # why the broker does not load the store
    scans_from: int = 0  # physical offset
    ends_at: int | None = None  # physical offset; None: the scan reaches no damage that ends the log
    records: int = 0  # good messages after `ends_at`
    bytes: int = 0
    of_group: bool = False  # of DLedger, whose log no repair changes

    def to_json(self) -> dict[str, Any]:
        """Return the part `restartNow` of `verify -o json`."""
        if self.refused is not None:
            return {"profile": self.profile, "refused": self.refused}
        return {
            "profile": self.profile,
            "scansFrom": self.scans_from,
            "offset": self.ends_at,
            "records": self.records,
            "bytes": self.bytes,
        }


class DamageTally:
    """Collects the damage that a scan of the log finds, and counts good messages."""

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        self._before: list[tuple[Damage, int, int]] = []

    def good(self, messages: int, size: int) -> None:
        """Count a run of good messages that have `size` bytes in total."""
        self._messages += messages
        self._bytes += size

    def damage(self, damage: Damage) -> None:
        """Record a damaged place."""
        if damage.code not in NEVER_MET:
            self._before.append((damage._replace(message=None), self._messages, self._bytes))

    def reach(self, store: ReadOnlyStore) -> RestartReach | None:
        """Return the effect of the damage if the broker restarts now.

        Call this after the scan of the whole log. None if rmqctl cannot simulate a restart with the layout of the
        store. Raises OSError if a queue cannot be read.
        """
        if store.path.layout is Layout.ROCKSDB:
            return None
        from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
        from rmqctl.store.read.version_guess import guess_profile
        from rmqctl.store.recovery.simulation import RestartSimulation

        profile = guess_profile(store)
        if store.path.layout is Layout.DLEDGER:
            return self._reach_of_group(store, profile)
        restart = RestartSimulation(store, profile, DispatchRequestBuilder(with_keys=False))
        if restart.refused is not None:
            return RestartReach(profile.label, restart.refused)
        start = restart.scan_start
        for damage, messages, size in self._before:
            if damage.end > start:
                restart.pass_over(damage.physical_offset)
                restart.damage(damage)
            if restart.scan_end is not None:
                dropped = self._messages - messages, self._bytes - size
                return RestartReach(profile.label, None, start, restart.scan_end.physical_offset, *dropped)
        return RestartReach(profile.label, None, start)

    def _reach_of_group(self, store: ReadOnlyStore, profile: Profile) -> RestartReach | None:
        from rmqctl.store.recovery.dledger_start import entry_files, recover_entries

        if not entry_files(store):
            return None
        found = recover_entries(store)
        if found.refused is not None:
            return RestartReach(profile.label, found.refused)
        start = found.start_file.file_from_offset
        for damage, messages, size in self._before:
            if damage.physical_offset >= found.end:
                dropped = self._messages - messages, self._bytes - size
                return RestartReach(profile.label, None, start, found.end, *dropped, of_group=True)
        return RestartReach(profile.label, None, start)
