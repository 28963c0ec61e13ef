"""One case: a golden store and one to four kinds of damage, all drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from tests.damage import log_kinds, other_kinds, queue_kinds
from tests.damage.pristine import Pristine
from tests.damage.victim import KINDS, Victim

# what registers the kinds
_MODULES = (log_kinds, other_kinds, queue_kinds)
MOST_DAMAGES = 4


class Case(NamedTuple):
    """`seed` is `SEED/NUMBER`.

    Each kind draws from the seed and its own name: without the others it does the same damage.
    """

    seed: str
    store: str
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"--case {self.seed} --store {self.store} --kinds {','.join(self.kinds)}"

    def make(self, stores: Mapping[str, Pristine], to: Path) -> Victim:
        """The damaged copy of the store, at `to`, with a broker.conf beside it."""
        pristine = stores[self.store]
        others = [other for name, other in sorted(stores.items()) if name != self.store]
        to.parent.mkdir(parents=True, exist_ok=True)
        conf_of(to).write_text("".join(f"{key}={value}\n" for key, value in pristine.broker_conf().items()))
        victim = Victim(pristine.copy(to), pristine, others)
        for number, name in enumerate(self.kinds):
            again = self.kinds[:number].count(name)
            KINDS[name](victim, random.Random(f"{self.seed}/{name}/{again}"))
        return victim

    def smaller(self) -> list[Case]:
        """The same case with fewer kinds, the fewest first."""
        return [
            self._replace(kinds=kinds)
            for count in range(1, len(self.kinds))
            for kinds in combinations(self.kinds, count)
        ]


def draw(seed: str, number: int, names: Sequence[str]) -> Case:
    """The case `number` of a seed over the stores `names`."""
    rng = random.Random(f"{seed}/{number}")
    kinds = tuple(rng.choices(sorted(KINDS), k=rng.randint(1, MOST_DAMAGES)))
    if rng.randrange(3) == 0:  # a broker's recovery is another one with `abort`
        kinds = (*kinds[: MOST_DAMAGES - 1], rng.choice(("abort-made", "abort-removed")))
    return Case(f"{seed}/{number}", rng.choice(sorted(names)), kinds)


def conf_of(store: Path) -> Path:
    """The broker.conf beside a store."""
    return store.with_name(f"{store.name}.conf")
