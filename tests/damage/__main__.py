"""Run random damage: `python -m tests.damage 1000 --seed today`; what it prints of a failing case replays that one."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rmqctl.kernels import scan
from rmqctl.kernels.kernel_cache import find_cache
from rmqctl.kernels.warm_up import cache_where, warm_up
from tests.conftest import DATA
from tests.damage.case import Case, draw
from tests.damage.pristine import Pristine, stores_of
from tests.damage.trial import Failure, Trial
from tests.damage.victim import KINDS

SHOWN = 900


def smallest(case: Case, failure: Failure, stores: dict[str, Pristine], scratch: Path) -> Case:
    """The case with as few kinds as still show the failure."""
    for smaller in case.smaller():
        if any(found.name == failure.name for found in Trial(smaller, stores, scratch).run()):
            return smaller
    return case


def main() -> int:
    """Parse the command line and run what it asks for; 1 where a case fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100, help="how many cases")
    parser.add_argument("--seed", default="0", help="any text")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--golden", type=Path, default=DATA, help="a folder of NAME.tar.xz and NAME.expected.json.xz")
    parser.add_argument("--case", help="SEED/NUMBER of one case, as it was printed")
    parser.add_argument("--store", help="its store")
    parser.add_argument("--kinds", help=f"its kinds, with commas, of: {', '.join(sorted(KINDS))}")
    parser.add_argument("--keep", type=Path, help="a folder to work in and to leave the last store in")
    parser.add_argument("--shrink", action="store_true", help="print each failing case with as few kinds as show it")
    options = parser.parse_args()
    cache_where(find_cache)
    warm_up(scan)  # opens the cache's folder, which no case may count as left open
    with tempfile.TemporaryDirectory(prefix="rmqctl-damage-") as folder:
        scratch = options.keep or Path(folder)
        stores = stores_of(options.golden, Path(folder))
        if options.case:
            seed, _, number = options.case.rpartition("/")
            drawn = (
                draw(seed, int(number), list(stores)) if not options.kinds else Case(options.case, options.store, ())
            )
            cases = [drawn._replace(kinds=tuple(options.kinds.split(","))) if options.kinds else drawn]
        else:
            cases = [draw(options.seed, options.first + number, list(stores)) for number in range(options.count)]
        return _run(cases, stores, scratch, shrink=options.shrink)


def _run(cases: list[Case], stores: dict[str, Pristine], scratch: Path, *, shrink: bool) -> int:
    began = time.monotonic()
    counts: Counter[str] = Counter()
    failed = 0
    for case in cases:
        failures = Trial(case, stores, scratch).run()
        failed += bool(failures)
        for failure in failures:
            counts[failure.name] += 1
            shown = smallest(case, failure, stores, scratch) if shrink else case
            print(f"FAILED {failure.name}\n  {shown}\n  {failure.detail[:SHOWN]}", flush=True)
    for name, count in counts.most_common():
        print(f"{count:5} {name}")
    print(f"{len(cases) - failed} passed, {failed} failed, {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
