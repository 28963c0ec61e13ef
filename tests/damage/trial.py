"""What must hold of every damaged store: the properties of inspection, plans, repairs and undo."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.errors import ExitCode
from tests.conftest import Result
from tests.damage.case import Case, conf_of
from tests.damage.command import TooLong, breach, call
from tests.damage.pristine import Pristine
from tests.damage.witness import Place, differences, reachable, snapshot
from tests.support.faulty_system import open_descriptors

Document = dict[str, Any]
LOOKED = (ExitCode.CLEAN, ExitCode.FINDINGS)
MADE = (ExitCode.CLEAN, ExitCode.REPAIRED)
WITHOUT_CONF = ("checkpoint", "undo")
KEEP_GOING = "--keep-going"
CHECKPOINT = ("set", "--physic-msg-timestamp", 1, "--logics-msg-timestamp", 2)
# keys of a rebuild's document that its dry run has, too: files are made beside only where it is carried out
OF_REBUILD = ("queues", "index", "unitsDiffer", "maxPhyOffset")


class Failure(NamedTuple):
    """A property that does not hold, and how."""

    name: str
    detail: str


class Trial:
    """One case in the folder `scratch`: `run` gives the properties that do not hold, none where all is well."""

    def __init__(self, case: Case, stores: Mapping[str, Pristine], scratch: Path) -> None:
        self._root = scratch / "store"
        shutil.rmtree(self._root, ignore_errors=True)
        case.make(stores, self._root)
        self._profile = stores[case.store].profile
        self._before = snapshot(self._root)
        self._reachable = reachable(self._root)
        self._failures: dict[str, str] = {}

    def run(self) -> list[Failure]:
        """Look at the store in every way, plan every repair; then make each of them and take it back."""
        gc.collect()  # what earlier cases left to it
        opened = open_descriptors()
        try:
            plans = self._look()
            self._recover("recover", plans["recover"])
            self._recover("recover --keep-going", plans["recover --keep-going"], KEEP_GOING)
            self._change("rebuild", plans["rebuild"], "rebuild", "all")
            self._change("truncate", plans["truncate"], "truncate", "--to", self._truncation())
            self._change("checkpoint", {}, "checkpoint", *CHECKPOINT)
        except TooLong as error:
            self._fail("time-limit", error)
        gc.collect()
        if left := open_descriptors() - opened:
            self._fail("left-open", f"{len(left)} descriptors")
        return [Failure(name, detail) for name, detail in self._failures.items()]

    def _look(self) -> dict[str, Document | None]:
        """Every inspection and every dry run: they leave each byte, mode and time of a file as it is.

        The plans that were made.
        """
        self._call("verify", "-o", "json")
        self._call("info", "-o", "json")
        self._call("dump", "-o", "jsonl", "--damaged")
        self._call("queue", "-o", "jsonl")
        self._call("config", "show", "-o", "json")
        self._call("clean", "--dry-run", "-o", "json")
        self._call("checkpoint", *CHECKPOINT, "--dry-run")
        self._call("truncate", "--dirty", "--dry-run")
        plans = {
            "recover": self._plan("recover", "--profile", self._profile),
            "recover --keep-going": self._plan("recover", "--profile", self._profile, KEEP_GOING),
            "rebuild": self._plan("rebuild", "all"),
            "truncate": self._plan("truncate", "--to", self._truncation()),
        }
        self._unchanged("inspection-writes")
        return plans

    def _truncation(self) -> int:
        """Where a message begins, in the last third."""
        offsets = sorted({place.physical_offset for place in self._reachable})
        return offsets[len(offsets) * 2 // 3] if offsets else 0

    def _recover(self, name: str, plan: Document | None, *options: str) -> None:
        with self._changed(name, plan, "recover", "--profile", self._profile, *options):
            if plan is None:
                return
            self._nothing_vanished(name, plan, reachable(self._root))
            self._queues_as_planned(name, plan)
            self._is_whole(name, plan)
            self._nothing_left_to_do(name, plan)

    def _change(self, name: str, plan: Document | None, verb: str, *options: object) -> None:
        with self._changed(name, plan, verb, *options):
            pass

    @contextmanager
    def _changed(self, name: str, plan: Document | None, verb: str, *options: object) -> Iterator[None]:
        """A change, while it lasts, that does what was planned (None: it was refused); then it is undone, byte for
        byte.
        """
        is_json = verb != "checkpoint"
        result = self._call(verb, *options, "--yes", *(("-o", "json") if is_json else ()))
        if (result.code in MADE) != (plan is not None):
            self._fail(
                f"refused:{name}",
                f"exit {result.code}, where the dry run had {plan is not None}: {result.err.strip()[-300:]}",
            )
        elif plan is not None and is_json:
            self._same(name, plan, result.document())
        yield
        if (self._root / ".rmqctl").exists():
            undone = self._call("undo", "--yes")
            if undone.code != ExitCode.CLEAN:
                self._fail(f"undo-refused:{name}", undone.err.strip()[-300:])
        self._unchanged(f"undo:{name}")

    def _plan(self, verb: str, *options: object) -> Document | None:
        """The document of a dry run; None where the verb refuses, and says so by its exit code."""
        result = self._call(verb, *options, "--dry-run", "-o", "json")
        if result.code not in LOOKED:
            return None
        document = result.document()
        if verb != "rebuild" and bool(document["actions"]) != (result.code == ExitCode.FINDINGS):
            self._fail(f"exit-code:{verb}", f"{result.code} with {len(document['actions'])} actions")
        return document

    def _same(self, name: str, plan: Document, done: Document) -> None:
        for key in OF_REBUILD if name == "rebuild" else plan.keys() - {"seconds"}:
            if plan[key] != done[key]:
                self._fail(
                    f"not-as-planned:{name}", f"{key}: planned {str(plan[key])[:400]}, done {str(done[key])[:400]}"
                )

    def _nothing_vanished(self, name: str, plan: Document, now: set[Place]) -> None:
        gone = self._reachable - now
        lost = plan["lost"]["records"]
        if len({place.physical_offset for place in gone}) > lost:
            self._fail(
                f"vanished:{name}",
                f"{len(gone)} intact messages have no unit any more, lost says {lost}: {sorted(gone)[:5]}",
            )

    def _queues_as_planned(self, name: str, plan: Document) -> None:
        rows = self._call("queue", "-o", "jsonl").rows()
        found = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows}
        for queue in plan["queues"]:
            wanted, got = (
                (queue["minOffset"], queue["maxOffset"]),
                found.get((queue["topic"], queue["queueId"]), (0, 0)),
            )
            if wanted != got and wanted[0] != wanted[1]:
                self._fail(
                    f"queue-not-as-planned:{name}", f"{queue['topic']}/{queue['queueId']}: planned {wanted}, got {got}"
                )

    def _is_whole(self, name: str, plan: Document) -> None:
        """After a repair verify finds as much of each code as the plan says that it leaves, and nothing else."""
        leaves = {left["code"]: left["count"] for left in plan["leaves"]}
        found: dict[str, list[Document]] = {}
        for finding in self._call("verify", "-o", "json").document()["findings"]:
            found.setdefault(finding["code"], []).append(finding)
        for code in sorted(leaves.keys() | found.keys()):
            findings, count = found.get(code, []), leaves.get(code, 0)
            if sum(finding.get("count", 1) for finding in findings) != count:
                self._fail(f"verify-after:{name}:{code}", f"{count} planned, found {findings[:3]}")

    def _nothing_left_to_do(self, name: str, plan: Document) -> None:
        again = self._plan("recover", "--profile", self._profile)
        if again is None:
            self._fail(f"second-recover-refused:{name}", "")
        elif again["actions"]:
            self._fail(f"second-recover:{name}", str(again["actions"])[:600])
        elif again["lost"]["records"]:
            self._fail(f"second-recover-loses:{name}", again["lost"])
        elif again["maxPhyOffset"] != plan["maxPhyOffset"]:
            self._fail(f"end-not-as-planned:{name}", f"planned {plan['maxPhyOffset']}, then {again['maxPhyOffset']}")

    def _fail(self, name: str, detail: object) -> None:
        """Each property fails once a case."""
        self._failures.setdefault(name, str(detail))

    def _call(self, verb: str, *arguments: object) -> Result:
        """A command on the store; its breach of the contract is a failure."""
        conf = () if verb in WITHOUT_CONF else ("--broker-conf", conf_of(self._root))
        before, after = (arguments[:1], arguments[1:]) if verb == "config" else ((), arguments)
        words = (verb, *before, self._root, *conf, *after)
        line = f"rmqctl {' '.join(map(str, words))}"
        try:
            result = call(*words)
        except TooLong as error:
            raise TooLong(line) from error
        broken = breach(result, *words)
        if broken is not None:
            self._fail(f"contract:{verb}", f"{line}: {broken}")
        return result

    def _unchanged(self, name: str) -> None:
        """Every byte, mode and time of the store's files is as it was when it was damaged."""
        changed = differences(self._before, snapshot(self._root))
        if changed:
            self._fail(name, "\n".join(changed[:10]))
