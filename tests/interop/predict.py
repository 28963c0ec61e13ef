"""Compare what rmqctl says of a broker's start with what the real store does, on random damage:

python -m tests.interop.predict --cases 1000 --versions all --seed today
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.format.profile import VERSIONS, number_of, profile_of
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where
from tests.conftest import DATA
from tests.damage import many_files
from tests.damage.case import Case, draw
from tests.damage.prediction import Prediction, predict, recover_differs
from tests.damage.pristine import Pristine, stores_of
from tests.real_store.harness import broker_conf, geometry_of
from tests.real_store.restarts import Restarts

COMMAND = "python -m tests.interop.predict"
MAPPED_SINCE = (4, 5, 2)  # earlier keys are mapedFileSize...
# of broker.conf, with values: what changes a start in some version; the others ignore it, as rmqctl has to
START_SETTINGS = {
    "messageIndexSafe": ("true",),
    "messageIndexEnable": ("false",),
    "commitLogRecoverMaxNum": ("1", "2", "5", "0"),
    "checkCommitLogOffsetOnRecover": ("true",),
    "enableAcceleratedRecovery": ("true",),
    "recheckReputOffsetFromCq": ("true",),
    "enableMultiDispatch": ("false", "true"),
}
NOT_TO_BE_HAD = ("4.9.6", "5.1.2", "5.3.4")  # Maven Central lacks jars of them
# with them, the log of most stores ends where a scan begins
ENDING_SETTINGS = ("forceVerifyPropCRC", "duplicationEnable")
DISPATCHES_IN_START = (4, 5)
SETTINGS = {"enableCompaction": "false"}  # messages of compaction topics are read from their queues, too
CASES_A_TASK = 100
WAITING_MAX = 16  # stores that the JVM has and rmqctl has done with
SECONDS, SECONDS_ALONE = 10, 120  # a start that takes longer hangs
ASK_RECOVER = 8  # the verb itself is asked in one case of so many: it takes as long as four predictions
MANY_FILES_SHARE = 3  # one case in three
SHOWN = 3
LIKE_THE_BROKER, UNKNOWN, UNLIKE = "agreed", "undecided", "disagreements"


class Start(NamedTuple):
    """One store under one version: the case NUMBER of a seed."""

    version: str
    number: int
    case: Case
    settings: dict[str, str]

    def __str__(self) -> str:
        return f"{self.version}/{self.number}"


class Verdict(NamedTuple):
    """`what` is one of LIKE_THE_BROKER, UNKNOWN, UNLIKE; `why` explains the last two."""

    start: Start
    what: str
    why: str = ""


def drawn(seed: str, version: str, number: int, names: Sequence[str]) -> Start:
    """The case `number` of a version. Its store is of that version or an older one, as after an upgrade."""
    rng = random.Random(f"{seed}/{version}/{number}/start")
    known = [name for name in names if name.removeprefix("broker-")[:3] <= version.replace(".", "")]
    many = [name for name in known if name in many_files.NAMES]
    chosen = many if rng.randrange(MANY_FILES_SHARE) == 0 else [name for name in known if name not in many]
    case = draw(f"{seed}/{version}", number, chosen)
    return Start(version, number, case, _drawn_settings(version, rng))


def _drawn_settings(version: str, rng: random.Random) -> dict[str, str]:
    """None in half of the cases."""
    if rng.randrange(2):
        return {}
    if rng.randrange(8) == 0:
        # up to 4.4.0, duplicationEnable stops the dispatch of a store that runs: no matter of a start
        ending = ENDING_SETTINGS if number_of(version) >= DISPATCHES_IN_START else ENDING_SETTINGS[:1]
        return {rng.choice(ending): "true"}
    names = rng.sample(sorted(START_SETTINGS), rng.randint(1, 3))
    return {name: rng.choice(START_SETTINGS[name]) for name in names}


def compared(prediction: Prediction, answer: Mapping[str, Any]) -> str:
    """How a prediction differs from the real start; empty where it does not."""
    ours, real = prediction.restart, _end_of(answer)
    predicted = next((key for key in ("refused", "hangs") if key in ours), "done")
    if predicted != real:
        return f"predicted {predicted} ({ours.get(predicted)}), real {real} ({answer.get('error')})"
    if real == "hangs":
        return _different("dispatch waits at", prediction.hangs_at, answer["reputFrom"])
    if real == "refused":
        return ""
    found = [_different(key, ours[key], answer[key]) for key in ("minPhyOffset", "maxPhyOffset")]
    found.append(_different("queues", _ranges(ours["queues"]), _ranges(answer["queues"])))
    if any(found):
        return "; ".join(filter(None, found))
    places = prediction.places()
    for queue in answer["queues"]:
        key = (queue["topic"], queue["queueId"])
        if key in places and "places" in queue:
            found.append(_different(f"places of {key}", _threes(places[key]), _threes(queue["places"])))
    return "; ".join(filter(None, found))


def _end_of(answer: Mapping[str, Any]) -> str:
    if "hangs" in answer:
        return "hangs"
    return "done" if answer.get("load") and "error" not in answer else "refused"


def _ranges(queues: Iterable[Mapping[str, Any]]) -> set[tuple[str, int, int, int]]:
    """Brokers make some queues that have nothing."""
    rows = ((row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in queues)
    return {row for row in rows if row[3] > 0}


def _threes(numbers: Sequence[int]) -> set[tuple[int, ...]]:
    return {tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)}


def _different(what: str, ours: Any, real: Any) -> str:
    if ours == real:
        return ""
    if isinstance(ours, set):
        return f"{what}: predicted {sorted(ours - real)[:SHOWN]}, real {sorted(real - ours)[:SHOWN]}"
    return f"{what}: predicted {ours}, real {real}"


class Comparison:
    """The cases of one version, in the folder `scratch`; `golden` has the stores before their damage."""

    def __init__(self, version: str, scratch: Path, golden: Path) -> None:
        self._version = version
        self._scratch = scratch
        self._stores = _stores(golden)
        self._restarts = 0

    def verdicts(self, starts: Iterable[Start]) -> Iterator[Verdict]:
        """Each case's, in no order; one that is not as predicted is asked again, alone and with more time."""
        doubted = []
        with Restarts(self._version, SECONDS) as real:
            for verdict in self._verdicts(starts, real, WAITING_MAX):
                if verdict.what == LIKE_THE_BROKER:
                    yield verdict
                else:
                    doubted.append(verdict)
        if not doubted:
            return
        with Restarts(self._version, SECONDS_ALONE) as real:
            for before, again in zip(
                doubted, self._verdicts((verdict.start for verdict in doubted), real, 0), strict=True
            ):
                is_other = again.what == UNLIKE == before.what and again.why != before.why
                yield again._replace(what=UNKNOWN, why="the store does not do it again") if is_other else again

    def _verdicts(self, starts: Iterable[Start], real: Restarts, waiting_max: int) -> Iterator[Verdict]:
        waiting: deque[tuple[Start, Path, Prediction | str, Future[dict[str, Any]]]] = deque()
        for start in starts:
            self._restarts += 1
            folder = self._scratch / f"{start.version}-{self._restarts}"
            prediction, conf = self._predicted(start, folder)
            waiting.append((start, folder, prediction, real.ask(conf)))
            while len(waiting) > waiting_max:
                yield self._verdict(*waiting.popleft())
        while waiting:
            yield self._verdict(*waiting.popleft())

    def _predicted(self, start: Start, folder: Path) -> tuple[Prediction | str, Path]:
        pristine = self._stores[start.case.store]
        root, conf = folder / "store", folder / "broker.conf"
        start.case.make(self._stores, root)
        text = broker_conf(root, geometry_of(pristine.broker_conf()), SETTINGS | pristine.settings | start.settings)
        is_mapped = number_of(start.version) >= MAPPED_SINCE
        conf.write_text(text if is_mapped else text.replace("mappedFileSizeCo", "mapedFileSizeCo"))
        profile = profile_of(start.version)
        try:
            prediction = predict(root, conf, profile)
        except OSError as error:
            return f"rmqctl fails: {error}".replace(str(root), "STORE"), conf
        differs = recover_differs(root, conf, profile, prediction) if start.number % ASK_RECOVER == 0 else ""
        return differs or prediction, conf

    def _verdict(
        self, start: Start, folder: Path, prediction: Prediction | str, answered: Future[dict[str, Any]]
    ) -> Verdict:
        answer = answered.result()
        try:
            if isinstance(prediction, str):
                return Verdict(start, UNLIKE, prediction)
            if answer.get("failedIn") == "read":
                return Verdict(start, UNKNOWN, f"reading fails: {answer['error']}")
            try:
                why = compared(prediction, answer)
            except FileNotFoundError as error:
                why = f"the store deletes {error.filename}"
            return Verdict(start, UNLIKE if why else LIKE_THE_BROKER, why)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the store may be shutting down


def prepare(scratch: Path) -> Path:
    """Unpack and write the stores that are damaged later; return their folder."""
    stores_of(DATA, scratch, _is_written)
    for name in many_files.NAMES:
        many_files.write(name, scratch / "pristine" / name / "store")
    return scratch


def _is_written(name: str) -> bool:
    """Stores of 3.x rmqctl only reads."""
    return not name.startswith("3")


@cache
def _stores(golden: Path) -> dict[str, Pristine]:
    stores = stores_of(DATA, golden, _is_written)
    return stores | {name: Pristine(name, DATA, golden) for name in many_files.NAMES}


def _task(seed: str, version: str, numbers: Sequence[int], golden: Path) -> list[Verdict]:
    cache_where(find_cache)
    names = sorted(_stores(golden))
    with tempfile.TemporaryDirectory(dir=golden, ignore_cleanup_errors=True) as folder:
        starts = (drawn(seed, version, number, names) for number in numbers)
        return list(Comparison(version, Path(folder), golden).verdicts(starts))


def run(seed: str, numbers: Mapping[str, Sequence[int]], jobs: int) -> Iterator[Verdict]:
    """The verdicts of the cases with these numbers of each version, in no order."""
    with tempfile.TemporaryDirectory(prefix="rmqctl-predict-", dir=_memory(), ignore_cleanup_errors=True) as folder:
        golden = prepare(Path(folder))
        with ProcessPoolExecutor(jobs) as pool:
            tasks = [
                pool.submit(_task, seed, version, part, golden)
                for version, chosen in numbers.items()
                for part in (chosen[at : at + CASES_A_TASK] for at in range(0, len(chosen), CASES_A_TASK))
            ]
            for task in tasks:
                yield from task.result()


def _memory() -> Path | None:
    """A file system in memory, if there is one: stores flush often."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else None


def table(verdicts: Iterable[Verdict]) -> str:
    """Counts by version and by kind of damage, and why cases are undecided."""
    rows: dict[str, Counter[str]] = {}
    whys: Counter[str] = Counter()
    for verdict in verdicts:
        for name in (verdict.start.version, *sorted(set(verdict.start.case.kinds)), "all"):
            rows.setdefault(name, Counter()).update(("cases", verdict.what))
        whys[verdict.why] += verdict.what == UNKNOWN
    columns = ("cases", LIKE_THE_BROKER, UNKNOWN, UNLIKE)
    lines = [f"{'':45}" + "".join(f"{column:>14}" for column in columns)]
    lines += [f"{name:45}" + "".join(f"{rows[name][column]:14}" for column in columns) for name in sorted(rows)]
    return "\n".join(lines + [f"undecided {count:6}: {why}" for why, count in whys.most_common() if count])


def main() -> int:
    """Parse the command line and run what it asks for; 1 where rmqctl and a broker disagree."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many, over all versions")
    parser.add_argument("--versions", default="all", help="with commas")
    parser.add_argument("--seed", default="0", help="any text")
    parser.add_argument("--only", action="append", default=[], help="VERSION/NUMBER of a case of the seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes, each with a JVM")
    options = parser.parse_args()
    every = [version for version in VERSIONS if version not in NOT_TO_BE_HAD]
    versions = every if options.versions == "all" else options.versions.split(",")
    numbers: dict[str, list[int]] = {version: [] for version in versions if not options.only}
    for case in range(0 if options.only else options.cases):
        numbers[versions[case % len(versions)]].append(case // len(versions))
    for only in options.only:
        version, _, number = only.partition("/")
        numbers.setdefault(version, []).append(int(number))
    began, verdicts = time.monotonic(), []
    for verdict in run(options.seed, numbers, options.jobs):
        verdicts.append(verdict)
        if verdict.what == UNLIKE:
            kinds = ",".join(verdict.start.case.kinds)
            said = ",".join(f"{name}={value}" for name, value in verdict.start.settings.items())
            print(f"{COMMAND} --seed {options.seed} --only {verdict.start}")
            print(f"  {verdict.start.case.store} {kinds} {said}\n  {verdict.why}")
            sys.stdout.flush()
    print(table(verdicts))
    print(f"{len(verdicts) / (time.monotonic() - began):.1f} cases a second")
    return int(any(verdict.what == UNLIKE for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
