"""Descriptions of what the next start of a broker does to a store."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from rmqctl.format.damage_kinds import codes
from rmqctl.format.profile import VERSIONS
from rmqctl.logfile.mapped_file_queue import is_file_name
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.forensics.doctor.group import Group
    from rmqctl.forensics.doctor.store_facts import StoreFacts
    from rmqctl.store.recovery.simulation import RestartOutcome

# causes at a place in the log, which the scan of a starting broker may reach
OF_LOG = frozenset(
    {
        "log-file-gone", "log-file-misplaced", "log-file-replaced", "logs-joined", "record-damaged",
        "record-of-another-queue",
        "record-with-other-keys", "messages-rejected", "record-misnumbered",
    }
)  # fmt: skip
OF_QUEUES = frozenset({"queues-gone", "queue-gone", "queue-damaged", "queue-with-other-tags", "queue-behind"})
CHECKED = codes(is_checked=True)  # a start that reads this damage ends the log there
# findings on wrong units that no start of a broker writes again
KEPT_UNITS = frozenset({"unit-mismatch", "unit-size", "unit-tags-code", "unit-order", "ext-missing"})


def is_blocking(restart: RestartOutcome, group: Group) -> bool:
    """Return whether the cause is why the start fails."""
    why = restart.problem
    if why is None or group.code == "disk-full":
        return False
    if group.code == "broker-conf-wrong":
        return True
    words = {word.strip(",:;()") for word in why.split()}
    return any(word == name or word.endswith(f"/{name}") for name in map(_named, group.subjects) for word in words)


def _named(subject: str) -> str:
    name = PurePosixPath(subject).name
    return subject if name.isdigit() and not is_file_name(name) else name


def start_to_json(restart: RestartOutcome | None) -> dict[str, Any]:
    """Return the outcome of the start for a JSON document, without the queues."""
    found = restart.to_json() if restart is not None else {}
    return {key: value for key, value in found.items() if key != "queues"}


def describe_start(restart: RestartOutcome | None, groups: Sequence[Group], facts: StoreFacts) -> str:
    """Describe the next start of the broker, and its effect on the causes."""
    if restart is None:
        return "rmqctl cannot simulate a start with this store."
    version = f"a broker of {restart.profile.label}"
    if restart.refused is not None:
        return f"{version} does not start: {restart.refused}."
    if restart.hangs is not None:
        return f"{version} waits for ever: {restart.hangs}."
    if any(group.code == "log-gone" for group in groups):
        return f"{version} starts with an empty log, and deletes all queues."
    words = [f"{version} starts: {_recovery(restart)}"]
    words += [_reach(restart, group) for group in groups if group.code in OF_LOG][:1]
    words += dict.fromkeys(
        _filling(group, facts) for group in groups if restart.fills_queues and group.code in OF_QUEUES
    )
    unloaded = [subject for group in groups if group.code == "compaction-unloaded" for subject in group.subjects]
    words += [f"Consumers get nothing of the queue of {', '.join(unloaded)}."] if unloaded else []
    words += _other_end(restart, facts.log_end)
    if restart.dropped_index_files:
        words += [f"It deletes {counted(len(restart.dropped_index_files), 'index file')}, and builds what it scans."]
    return " ".join(filter(None, words))


def _recovery(restart: RestartOutcome) -> str:
    begin = f" from {restart.start_file_path}" if restart.start_file_path else ""
    lost = restart.lost
    if not lost.records:
        return f"the {restart.mode.value} recovery{begin} loses no message; the log ends at {restart.max_phy_offset}."
    why = f" ({restart.end.why})" if restart.end is not None and restart.end.why else ""
    return (
        f"the {restart.mode.value} recovery{begin} ends the log at {restart.max_phy_offset}{why} and loses "
        f"{counted(lost.records, 'message')}, {counted(lost.bytes, 'byte')}."
    )


def _other_end(restart: RestartOutcome, log_end: int) -> Iterator[str]:
    end = restart.max_phy_offset
    if end < log_end:
        yield f"It stores the next message at {end}, and not at {log_end}, where doctor's scan of the log ends."
    elif end > log_end:
        yield (
            f"It stores the next message at {end}. The last message ends at {log_end}: the log keeps a hole between "
            "them, and the queues keep the units that lead into the hole."
        )


def _filling(group: Group, facts: StoreFacts) -> str:
    if any(finding.code in KEPT_UNITS for finding in group.findings):
        return "It does not write units again that a queue has, even if they are wrong."
    if facts.is_healed:
        return "It fills the queues from the log."
    if facts.still_missed is None:
        return "It does not give the queues all that they miss."
    return f"The queues of the store still miss {counted(facts.still_missed, 'message')} afterwards."


def _reach(restart: RestartOutcome, group: Group) -> str:
    # whether the recovery scan reaches the damage of a cause
    if restart.start_file_path is None:
        return ""
    begin = int(PurePosixPath(restart.start_file_path).name)
    ends = [end for _, end in group.ranges] or [group.physical_offset + 1]
    if max(ends) <= begin:
        reach = ", and a later start can reach it" if any(found.code in CHECKED for found in group.findings) else ""
        return f"It begins after {group.physical_offset}: the damage there stays{reach}."
    is_passed = restart.max_phy_offset > group.physical_offset
    return f"It {'passes over' if is_passed else 'stops at'} the damage at {group.physical_offset}."


def grouped_starts(
    starts: Iterable[tuple[tuple[str, ...], RestartOutcome]],
) -> tuple[tuple[tuple[str, ...], RestartOutcome], ...]:
    """Join the versions that come to the same, or return () if all do.

    `starts` are in the order of the versions; what is joined stays in this order.
    """
    groups: dict[tuple[object, ...], list[tuple[tuple[str, ...], RestartOutcome]]] = {}
    for versions, restart in starts:
        groups.setdefault(_effect(restart), []).append((versions, restart))
    if len(groups) == 1:
        return ()
    return tuple(
        (tuple(version for versions, _ in same for version in versions), same[0][1]) for same in groups.values()
    )


def _effect(restart: RestartOutcome) -> tuple[object, ...]:
    if restart.refused is not None or restart.hangs is not None:
        return restart.refused is not None, restart.hangs is not None
    return restart.max_phy_offset, restart.lost.records, _served(restart), _deleted(restart)


def _served(restart: RestartOutcome) -> int:
    return sum(max(queue.max_offset - queue.min_offset, 0) for queue in restart.queues)


def _deleted(restart: RestartOutcome) -> tuple[str, ...]:
    return (*restart.deleted_log_files, *(name for queue in restart.queues for name in queue.deleted))


def starts_in_words(starts: Sequence[tuple[tuple[str, ...], RestartOutcome]]) -> str:
    """Say in one line which versions do what; `starts` come from `grouped_starts`."""
    started = [restart for _, restart in starts if restart.problem is None]
    differ = len({_served(restart) for restart in started}) > 1
    return "; ".join(
        f"{_ranges(versions)} {_start_in_words(restart, is_one=len(versions) == 1, says_served=differ)}"
        for versions, restart in starts
    )


def _ranges(versions: Sequence[str]) -> str:
    """Return versions as text: those that follow one another as a range."""
    ranges: list[list[str]] = []
    for version in versions:
        follows = ranges and VERSIONS.index(version) == VERSIONS.index(ranges[-1][-1]) + 1
        if follows:
            ranges[-1].append(version)
        else:
            ranges.append([version])
    words = [
        f"{one[0]} and later"
        if one[-1] == VERSIONS[-1] and one[1:]
        else f"{one[0]} to {one[-1]}"
        if one[2:]
        else " and ".join(one)
        for one in ranges
    ]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _start_in_words(restart: RestartOutcome, *, is_one: bool, says_served: bool) -> str:
    s = "s" if is_one else ""
    if restart.refused is not None:
        return f"refuse{s} to start ({restart.refused})"
    if restart.hangs is not None:
        return f"wait{s} for ever ({restart.hangs})"
    deleted = _deleted(restart)
    words = [f"delete{s} {deleted[0] if len(deleted) == 1 else counted(len(deleted), 'file')}"] if deleted else []
    words += [f"lose{s} {counted(restart.lost.records, 'message') if restart.lost.records else 'no message'}"]
    words += (
        [f"then ha{'s' if is_one else 've'} {counted(_served(restart), 'message')} in queues"] if says_served else []
    )
    return f"start{s}, {', '.join(words)}"
