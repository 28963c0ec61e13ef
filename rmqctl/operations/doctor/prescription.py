"""The next command for a cause, and the state of the store after the command."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rmqctl.forensics.doctor.next_start import OF_LOG, OF_QUEUES
from rmqctl.logfile.system.remote_storage import is_remote
from rmqctl.store.config.config_file import GROUPS_CONFIG, TOPICS_CONFIG
from rmqctl.store.config.file_sizes import usual_size
from rmqctl.store.config.store_path import CONFIG, KV_FOLDER, SIGN_OF_5_4
from rmqctl.store.read.consumers.consumer_groups import is_broker_group
from rmqctl.store.recovery.dledger_start import MOVE_AWAY
from rmqctl.store.rocksdb.config_files import LAYOUTS
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqctl.forensics.doctor.group import Group
    from rmqctl.forensics.finding import Finding
    from rmqctl.operations.doctor.examination import Examination, Repairs
    from rmqctl.operations.doctor.surroundings import UnreadOffsets
    from rmqctl.operations.heal.plan import HealPlan
    from rmqctl.operations.repair.recovery_plan import RecoveryPlan

LOOK = "This changes nothing; `rmqctl explain {code}` says what to do by hand."
QUEUES_BEGIN_LATER = (
    "The queues then begin with the first message that the log has. A queue without a "
    "message in the log stays as it is, because it keeps the number of its next message."
)
DELAYS_SET = "{waiting} {verb} there: the broker delivers them when they are due. {undo}"
OFFSETS_CHOICE = (
    "This only shows the plan: you have to choose. `--to latest --yes` skips the {held} that these queues have now, "
    "right if the group consumed them before the queues were cut. `--to earliest --yes` delivers all {held}, those "
    "that the group consumed once more. "
)
NO_TOPIC = (
    "This changes nothing. The topic does not exist in this store, so the offset waits for nobody: it matters only if "
    "the topic is created again."
)
OFFSET_OF_BROKER = (
    "This changes nothing. Only the broker itself reads as this group, and puts the offset right when it reads next."
)
OFFSETS_SET = "The group then gets the next message that is stored."
DELAY_STALLED = (
    "This changes nothing, and shows the first message that waits. Start the broker, and run doctor on the stopped "
    "store again: if the level is still there, `rmqctl config set-offset --delay-level` can pass over this message."
)
HALF_STALLED = (
    "This changes nothing, and shows the first half message. Its producers know whether to commit it: start one of "
    "the group (PGROUP), so that the broker can ask."
)
DISK_FULL = (
    "This changes nothing, and shows which expired files `clean` would delete. If that is too little, move other files "
    "off the disk. A broker takes messages again as soon as the disk is below its limit."
)
TWINS = (
    "The second message then comes again at the end of its queue, with a new offset, and consumers get it. The pair "
    "stays in the log, and doctor names it again: once is enough."
)
CONF_CORRECTED = "The broker reads it at its next start; the old file is then {path}.bak.{more} Run doctor again."
LINES_TO_LEAVE_OUT = " The files have the default sizes: the lines can also be left out."
OFFSETS_COPIED = "The broker then knows where these groups are."
BROKER_RUNS = "The broker ends cleanly. Run doctor again."
BROKER_ELSEWHERE = (
    "This changes nothing, and names who holds the lock. Stop the broker where it runs: its process cannot be seen "
    "from here, as with another container or host."
)
SETTING_FIRST = (
    "This changes nothing, and shows what a start would lose. Take the setting out of broker.conf first, and run "
    "doctor again: the messages are whole."
)
CLOCK = (
    "This changes nothing, and shows the messages around that place. There is nothing to repair: use offsets rather "
    "than times with `config set-offset`, and see that the broker's clock is right before it starts."
)
WENT_BACK = (
    "This only shows the plan. With --yes instead of --dry-run, the group does not get again what it had; what it "
    "never had of these messages is skipped. If someone set the offsets back on purpose, nothing is wrong."
)
FILLED_BY_START = "There is nothing to repair: start the broker, and it fills the queues from the log."
TIMERS = "A broker then delivers each timer message that waits once."
UNREAD = (
    "This changes nothing. A running broker takes the change: `mqadmin updateTopicPerm -b HOST:PORT -t TOPIC -p 6` "
    "allows reading and writing (4: reading alone), `mqadmin updateTopic -b HOST:PORT -t TOPIC -r N -w N` gives a "
    "topic N queues."
)
COMPACTED = (
    "This changes nothing, and shows what is whole in compaction/: keep it, as the log may no longer have it. What the "
    "log has comes back: move compactionLog/TOPIC/QUEUEID and compactionCq/TOPIC/QUEUEID away, create `abort`, and "
    "remove `checkpoint` before the next start. `rmqctl explain {code}` says more."
)
DLEDGER_REFUSED = f"This changes nothing: {MOVE_AWAY}. Run doctor again."
UNITS_KEPT = (
    "If this finds nothing but `abort`, delete the file `abort`: a normal recovery keeps all units. The abnormal one "
    "of 5.2.0 to 5.4.0 drops the last units of the queues of a DLedger store."
)
LOG_GONE = (
    "This changes nothing. If the log is in another folder, `rmqctl doctor STORE --broker-conf FILE` with the broker's "
    "own broker.conf finds it."
)
OLD_ENTRIES = (
    "This changes nothing: the file may be right, and restoring it can lose what was added later. With --yes instead "
    "of --dry-run, the file is then as its .bak."
)
CONFIG_DATABASE = (
    "This changes nothing, and shows what can still be read. Put a good copy of the database there, from a backup or a "
    "slave. Without one, move it away: the broker then starts without its entries. Create the topics at once (`mqadmin "
    "updateTopic`), as it deletes queues in RocksDB of others after 10 minutes, then groups (`mqadmin updateSubGroup`) "
    "and offsets (`mqadmin resetOffsetByTime`)."
)
OTHER_KEYS = (
    "This changes nothing. `rmqctl recover` and `rmqctl rebuild` would make the index agree with the record: keep a "
    "copy of index/ first, if the right key is not known."
)
OTHER_QUEUE = (
    "This changes nothing, and nothing has to change: brokers serve the message from the queue that leads to it. "
    "`rmqctl rebuild` can put it into the queue that it names, in the place of another message: look at its plan first."
)
INDEX_DATABASE = (
    "This changes nothing, and shows which keys. The messages are whole: `rmqctl query --scan` finds them. rmqctl does "
    "not write the database. If it has no rows, a broker that starts with a file `abort` in the store fills it; with "
    "indexFileReadEnable=true, brokers ask the files that `rmqctl rebuild` builds."
)
OTHER_TAGS = "The queue then agrees with the record: keep a copy of the queue first, if the right tags are not known. "
LOGS_JOINED = (
    "This only shows what a cut at the joint would lose. Messages before the joint can differ from the master's, too: "
    "the sure cure is a new copy of the master, by `rmqctl replicate`, or by an empty store and a start as its slave."
)
# cause -> the command for it, and what follows; {target} is the store with its options, {path} the first subject
COMMANDS = {
    "start-loses": ("rmqctl recover {target} --dry-run", SETTING_FIRST),
    "log-head-gone": (
        "rmqctl rebuild {target} queues --yes",
        QUEUES_BEGIN_LATER,
    ),
    "config-damaged": ("rmqctl config restore {target} {name} --yes", "The file is then as its .bak, or rebuilt."),
    "topics-lost": ("rmqctl config restore {target} {name} --from store --yes", "topics.json then lists them."),
    "config-lost": ("rmqctl config restore {target} {name} --yes", "The file then has what the store shows."),
    "config-database-damaged": ("rmqctl config show {target}", CONFIG_DATABASE),
    "config-shrunk": (
        "rmqctl config restore {target} {name} --from bak --dry-run",
        OLD_ENTRIES,
    ),
    "config-emptied": ("rmqctl config restore {target} {name} --from bak --yes", "The file is then as its .bak."),
    "config-rolled-back": ("rmqctl config restore {target} {name} --from bak --dry-run", OLD_ENTRIES),
    "change-unfinished": (
        "rmqctl undo {target} --yes",
        "The store is then as before the change. Run doctor again.",
    ),
    "log-gone": ("rmqctl info {target}", LOG_GONE),
    "logs-joined": ("rmqctl truncate {target} --to {offset} --dry-run", LOGS_JOINED),
    "journal-damaged": ("rmqctl undo {target} --list", LOOK),
    "queue-unread": ("rmqctl config show {target} topics", UNREAD),
    "record-of-another-queue": ("rmqctl dump {target} --around {offset}", OTHER_QUEUE),
    "record-with-other-keys": ("rmqctl dump {target} --around {offset}", OTHER_KEYS),
    "controller-files-wrong": ("rmqctl info {target}", LOOK),
    "database-rows-lost": ("rmqctl verify {target}", LOOK),
    "index-database-wrong": ("rmqctl verify {target}", INDEX_DATABASE),
    "disk-full": ("rmqctl clean {target} --manual --dry-run", DISK_FULL),
    "committed-gone": ("rmqctl info {target}", LOOK),
    "dledger-file-wrong": ("rmqctl info {target}", DLEDGER_REFUSED),
    "delay-stalled": ("rmqctl dump {target} --around {offset}", DELAY_STALLED),
    "half-stalled": ("rmqctl dump {target} --around {offset}", HALF_STALLED),
    "clock-went-back": ("rmqctl dump {target} --around {offset}", CLOCK),
} | dict.fromkeys(
    ("timer-gone", "timer-stalled", "timer-refused", "timer-behind", "timer-ahead"),
    ("rmqctl rebuild {target} timers --yes", TIMERS),
) | dict.fromkeys(
    (
        "compaction-refused", "compaction-unloaded", "compaction-damaged", "compaction-gone", "compaction-ahead",
        "compaction-stalled",
    ),
    ("rmqctl dump {target} --compaction --damaged", COMPACTED),
)  # fmt: skip
# databases that no repair changes
UNWRITTEN = frozenset({KV_FOLDER, SIGN_OF_5_4, *(f"{CONFIG}/{name}" for layout in LAYOUTS for name in layout)})
OF_INDEX = frozenset({"index-gone", "index-damaged"})
KEEP_GOING = " --keep-going"
APPENDS = "| rmqctl append "
# commands that a broker would disturb; rmqctl's own exit with 11 while a broker has the store open
NEED_STORE = (
    "mv ", "cp -p ", "rmqctl heal ", "rmqctl recover ", "rmqctl rebuild ", "rmqctl undo ", "rmqctl config restore ",
    "rmqctl config set-offset ", "rmqctl truncate ",
)  # fmt: skip
REFILL = ("rmqctl recover ", "rmqctl rebuild ")  # makes queues and index agree with a damaged record: heal first
LOST_CONFIG = (
    "This changes nothing. No other file of the store has the content: put a good copy of the file there, for example "
    "from a slave. Without a copy, move the file and its .bak away; for offsets, `rmqctl config set-offset "
    "--new-group` then writes a new file."
)
RENAMED = (
    "The files then have their names again, and nothing is lost. Run doctor again before anything else: other verbs "
    "would miss their messages."
)
ASIDE = ".aside"  # what the first file of a circle of names is called in between
SHOWN = "This only shows the plan: if it is what you want, give --yes instead of --dry-run."
UNDO = "`rmqctl undo` takes it back."
GIVEN_PROFILE = "`{option}` is as doctor got it. "
UNKNOWN_PROFILE = (
    "`--profile {profile}` is rmqctl's guess, because the store does not show which broker version wrote its index: "
    "name another version if you know better. "
)
LOOK_AT_LOG, LOOK_AT_ALL = "rmqctl dump {target} --around {offset}", "rmqctl verify {target}"


class Prescriber:
    """Names the next command for each cause of an examination.

    `target` is the path of the store with its options, quoted for a shell. `options` are those for `recover`.
    """

    def __init__(self, examination: Examination, target: str, options: str) -> None:
        self._examination = examination
        self._target = target
        self._plan, how, self._other = _better(examination.repairs)
        profile = examination.repairs.profile
        self._options = (options or (f" --profile {profile}" if profile else "")) + how
        self._reason = GIVEN_PROFILE.format(option=options.split(maxsplit=1)[0]) if options else ""
        if profile and not options:
            self._reason = UNKNOWN_PROFILE.format(profile=profile)

    def of(self, group: Group) -> tuple[str, str]:
        """Return the next command for a cause, and the state of the store afterwards.

        With a broker alive, a command that needs the store for itself begins with stopping the broker and waiting for
        its end.
        """
        command, then = self._of(group)
        healing = self._examination.healing
        if healing is not None and self._is_for_heal(group, command, healing):
            command, then = self._heal(healing)
        pid = self._examination.broker_pid or 0
        needs_store = command.startswith(NEED_STORE) or APPENDS in command
        if pid <= 0 or group.code == "broker-runs" or not needs_store:
            return command, then
        return f"kill {pid} && tail --pid={pid} -f /dev/null\n{command}", then

    def _of(self, group: Group) -> tuple[str, str]:
        own: dict[str, Callable[[Group], tuple[str, str]]] = {
            "broker-runs": lambda _: self._stop(self._examination.broker_pid or 0),
            "broker-conf-wrong": self._correct_conf,
            "offsets-unread": lambda _: self._copy_offsets(self._examination.unread_offsets),
            "log-file-renamed": lambda _: (self._rename(), RENAMED),
            "group-ahead": self._set_offsets,
            "group-went-back": lambda one: (self._set_forward(one), WENT_BACK),
            "queue-twins": lambda one: (self._append_twins(one), TWINS),
            "delay-ahead": lambda one: self._set_delay_levels(one.findings),
        }
        if group.code in own:
            return own[group.code](group)
        if group.code == "delay-stalled" and (again := self._delivered_again(group)):
            return self._set_delay_levels(again)
        if group.code in ("config-damaged", "config-lost") and self._is_lost(group):
            return f"rmqctl config show {self._target}", LOST_CONFIG
        if group.code in COMMANDS and not (group.code == "log-head-gone" and self._examination.repairs.is_blocked):
            command, then = COMMANDS[group.code]
            first = group.findings[0] if group.findings else None
            return command.format(**self._places(group, first)), then.format(code=self._code(group))
        refused = self._examination.repairs.refused
        if group.code == "broker-died" and self._examination.facts.in_rocksdb and self._examination.facts.is_healed:
            return f"rmqctl recover {self._target} --dry-run", FILLED_BY_START
        restart, repairs = self._examination.restart, self._examination.repairs
        if group.code == "broker-died" and repairs.may_rebuild and restart is not None and restart.lost.records:
            return f"rmqctl verify {self._target}", UNITS_KEPT
        if self._plan is None or not self._plan.repair.steps or not self._is_mended(group):
            part = "queues" if group.code in OF_QUEUES else "index" if group.code in OF_INDEX else ""
            if refused and part and (repairs.may_rebuild or not repairs.is_blocked):
                return (
                    f"rmqctl rebuild {self._target} {part} --dry-run",
                    f"`rmqctl recover` refuses: {refused}. {SHOWN}",
                )
            why = f"`rmqctl recover` refuses: {refused}. " if refused else ""
            look = LOOK_AT_LOG if group.code in OF_LOG else LOOK_AT_ALL
            return look.format(**self._places(group, group.findings[0] if group.findings else None)), why + LOOK.format(
                code=self._code(group)
            )
        if self._examination.rejects_good:  # which a repair by these rules would remove
            return f"rmqctl recover {self._target}{self._options} --dry-run", SETTING_FIRST
        caution = OTHER_TAGS if group.code == "queue-with-other-tags" else ""
        healing = self._examination.healing
        others = f" {healing.offer}: do that first." if healing is not None and group.code in OF_LOG else ""
        then = caution + self._reason + _after(self._plan) + self._other + others
        return f"rmqctl recover {self._target}{self._options} {'--dry-run' if self._plan.fewer else '--yes'}", then

    def _heal(self, healing: HealPlan) -> tuple[str, str]:
        if len(healing.healed) == len(healing.outcomes):
            return f"rmqctl heal {self._target} --yes", f"{healing.offer}, exactly. {UNDO}"
        then = (
            f"This changes nothing. With --yes instead of --dry-run, {healing.offer}, exactly. Run doctor again then."
        )
        return f"rmqctl heal {self._target} --dry-run", then

    def _is_for_heal(self, group: Group, command: str, healing: HealPlan) -> bool:
        """Return whether `heal` comes first, or is the whole cure of a cause."""
        if command.startswith(REFILL) and "--yes" in command:
            return True
        if group.code in OF_LOG and group.code not in COMMANDS and len(healing.healed) == len(healing.outcomes):
            return True
        healed = {one.physical_offset for one in healing.healed}
        return bool(group.findings) and all(one.physical_offset in healed for one in group.findings)

    def _stop(self, pid: int) -> tuple[str, str]:
        return (f"kill {pid}", BROKER_RUNS) if pid > 0 else (f"rmqctl info {self._target}", BROKER_ELSEWHERE)

    def _is_lost(self, group: Group) -> bool:
        """Return whether the files of a cause can neither be restored nor rebuilt."""
        paths = set(group.subjects)
        is_gone = group.code == "config-lost" or paths <= self._examination.facts.lost_config
        return is_gone and not any(PurePosixPath(path).name in (TOPICS_CONFIG, GROUPS_CONFIG) for path in paths)

    def _rename(self) -> str:
        todo = dict(self._examination.facts.renamed.values())
        if any(is_remote(path) for path in todo):
            return LOOK_AT_ALL.format(target=self._target)
        moves = []
        while todo:
            path = next((path for path, right in todo.items() if right not in todo), None)
            if path is not None:
                moves.append((path, todo.pop(path)))
                continue
            path = next(iter(todo))
            aside = path.with_name(path.name + ASIDE)
            moves.append((path, aside))
            todo[aside] = todo.pop(path)
        return "\n".join(f"mv -n {quoted(path)} {quoted(right)}" for path, right in moves)

    def _copy_offsets(self, unread: UnreadOffsets | None) -> tuple[str, str]:
        if unread is None or is_remote(unread.source):
            return LOOK_AT_ALL.format(target=self._target), OFFSETS_COPIED
        if not unread.has_entries:
            return f"cp -p {quoted(unread.source)} {quoted(unread.target)}", OFFSETS_COPIED
        commands = [
            f"rmqctl config set-offset {self._target} --to {one.offset} --yes "
            f"{_names(one.owner, one.topic)} {one.queue_id}"
            for one in unread.missing
        ]
        return "\n".join(commands), OFFSETS_COPIED

    def _correct_conf(self, group: Group) -> tuple[str, str]:
        has_defaults = all(one.actual == usual_size(one.key) for one in self._examination.wrong_sizes)
        more = LINES_TO_LEAVE_OUT if has_defaults else ""
        edits = []
        for one in self._examination.wrong_sizes:
            edits.append(f"-e '{one.line.first}s/.*/{one.name}={one.actual}/'")
            if one.line.last > one.line.first:
                edits.append(f"-e '{one.line.first + 1},{one.line.last}d'")
        path = group.subjects[0]
        return f"sed -i.bak {' '.join(edits)} {quoted(path)}", CONF_CORRECTED.format(path=path, more=more)

    def _is_mended(self, group: Group) -> bool:
        # whether the repair removes all findings of a code in `group.findings`, if any
        leaves = self._plan.repair.leaves if self._plan is not None else {}
        if UNWRITTEN.issuperset(group.subjects) and group.subjects:
            return False
        return not all(leaves.get(finding.code, 0) for finding in group.findings) or not group.findings

    def _code(self, group: Group) -> str:
        return group.findings[0].code if group.findings else group.code

    def _places(self, group: Group, first: Finding | None) -> dict[str, str]:
        path = group.subjects[0] if group.subjects else ""
        offset = first.physical_offset if first is not None else None
        return {"target": self._target, "name": quoted(PurePosixPath(path).name), "offset": str(offset or 0)}

    def _set_offsets(self, group: Group) -> tuple[str, str]:
        """Return the commands that set each group back to its queues, and what follows.

        For a group that is ahead in all queues of a topic, one command without a queueId does. The end of a queue skips
        the messages that it has: they may be what the group waits for.
        """
        facts = self._examination.facts
        of_users = [one for one in group.findings if not is_broker_group(self._owner(one))]
        findings = [finding for finding in of_users if finding.topic not in facts.unknown]
        if not findings:
            return f"rmqctl config show {self._target} offsets", NO_TOPIC if of_users else OFFSET_OF_BROKER
        held = sum(facts.held.get((one.topic or "", one.queue_id or 0), 0) for one in findings)
        ahead: dict[tuple[str, str], list[int]] = {}
        for finding in findings:
            topic, queue_id = finding.topic or "", finding.queue_id or 0
            ahead.setdefault((self._owner(finding), topic), []).append(queue_id)
        queues: dict[str, set[int]] = {}
        for topic, queue_id in facts.queue_ends:
            queues.setdefault(topic, set()).add(queue_id)
        commands: list[str] = []
        for (owner, topic), queue_ids in ahead.items():
            known = queues.get(topic, set())
            is_whole = len(known) > 1 and known <= set(queue_ids)
            how = "--dry-run" if held else "--yes"
            command = f"rmqctl config set-offset {self._target} --to latest {how} {_names(owner, topic)}"
            commands += [command] if is_whole else [f"{command} {queue_id}" for queue_id in queue_ids]
        choice = OFFSETS_CHOICE.format(held=counted(held, "message")) if held else ""
        return "\n".join(commands), choice + OFFSETS_SET

    def _set_forward(self, group: Group) -> str:
        return "\n".join(
            f"rmqctl config set-offset {self._target} --to {(one.queue_offset or 0) + one.count} --dry-run "
            f"{_names(self._owner(one), one.topic or '')} {one.queue_id}"
            for one in group.findings
        )

    def _append_twins(self, group: Group) -> str:
        offsets = [finding.physical_offset or 0 for finding in group.findings]
        target = self._target.removesuffix(" --follow-links")  # which append does not know
        return "\n".join(
            f"rmqctl dump {self._target} --from-offset {at} --to-offset {at + 1} --body base64 -o jsonl "
            f"{APPENDS}{target} --from -"
            for at in offsets
        )

    def _delivered_again(self, group: Group) -> list[Finding]:
        known = self._examination.facts.undelivered
        return [one for one in group.findings if known[one.queue_id or 0].repeated_at(one.queue_offset or 0) > 0]

    def _set_delay_levels(self, findings: Sequence[Finding]) -> tuple[str, str]:
        queue_ids = [finding.queue_id or 0 for finding in findings]
        found = [self._examination.facts.undelivered[queue_id] for queue_id in queue_ids]
        commands = [
            f"rmqctl config set-offset {self._target} --delay-level {queue_id + 1} --to undelivered --yes"
            for queue_id in queue_ids
        ]
        waiting = sum(len(one.waiting) for one in found)
        verb = "waits" if waiting == 1 else "wait"
        then = DELAYS_SET.format(waiting=counted(waiting, "message"), verb=verb, undo=UNDO)
        return "\n".join(commands), then

    def _owner(self, finding: Finding) -> str:
        place = (finding.path, finding.topic, finding.queue_id, finding.queue_offset)
        owners = self._examination.facts.owners.get(place, ())
        return next((one for one in owners if finding.detail.startswith(f"{one} is at ")), "")


def _names(owner: str, topic: str) -> str:
    dash = "-- " if owner.startswith("-") or topic.startswith("-") else ""
    return f"{dash}{quoted(owner)} {quoted(topic)}"


def _better(repairs: Repairs) -> tuple[RecoveryPlan | None, str, str]:
    """Return the better plan, the option for it, and a note on the rejected plan.

    A plan without remaining findings is better than one with some. Otherwise `--keep-going` is better if it keeps more
    good messages or leaves fewer findings.
    """
    plain, other = repairs.plain, repairs.keep_going
    if plain is None or other is None:
        return plain, "", ""
    ours, theirs = plain.repair.leaves, other.repair.leaves
    is_better = plain.keepable or sum(theirs.values()) < sum(ours.values())
    if is_better and (ours or not theirs):
        return other, KEEP_GOING, ""
    kept = f" With{KEEP_GOING}, {counted(plain.keepable, 'good message')} would stay, and findings, too."
    return plain, "", kept if plain.keepable else ""


def _after(plan: RecoveryPlan) -> str:
    repair = plan.repair
    lost = counted(repair.lost.records, "message")
    whose = "its" if repair.lost.records == 1 else "their"
    placed = f" and puts placeholders in {whose} place, so that all later messages stay"
    placed = placed if repair.placeholders.served else ""
    left = ", ".join(f"{count} {code}" for code, count in sorted(repair.leaves.items()))
    then = f"`verify` then {f'still reports {left}' if left else 'finds nothing'}. {UNDO}"
    if not repair.lost.records:
        return f"It loses no message{placed}. {then}"
    if not plan.fewer:
        are = "is" if repair.lost.records == 1 else "are"
        return f"{lost} {are} gone already, or with the next start: this loses no more{placed}. {then}"
    gone = f" ({plan.missing} already gone from the log)" if plan.missing else ""
    return f"This changes nothing. With --yes instead of --dry-run, it loses {lost}{gone}{placed}. {then}"
