"""Records that may have a flipped bit in a field without a checksum.

What this finds costs a pass of the log little, and is only a suspicion: `Examination` has the witnesses.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.forensics.witness.diagnosis import OFFERED_MAX
from rmqctl.forensics.witness.usual import BORN_SPAN_MS, DISTINCT_MAX, EXCEPTIONS_MAX, RECONSUME_TIMES_MAX, SPIKE_MS
from rmqctl.format.message import HEADS

if TYPE_CHECKING:
    from rmqctl.format.columns import Flags, Numbers
    from rmqctl.logfile.column_reader import Columns

CHUNK = 4096  # records that are compared together
UINT = np.int64(0xFFFFFFFF)
SLACK = SPIKE_MS, BORN_SPAN_MS  # of the two times
_HEAD = HEADS[0]
_BORN_TIME, _BORN_HOST = _HEAD.offset("BORNTIMESTAMP"), _HEAD.offset("BORNHOST")
# hosts have two lengths: these fields are at a fixed distance before the body
_STORE_HOST, _TIMES_SENT, _PREPARED = (
    _HEAD.size - _HEAD.offset(name) for name in ("STOREHOST", "RECONSUMETIMES", "PREPAREDTRANSACTIONOFFSET")
)


def fields_of(columns: Columns) -> Numbers:
    """Return a column of fields for each record.

    They are its physical offset, STORETIMESTAMP and its distance from BORNTIMESTAMP in ms, and what changes rarely.
    """
    rows = columns.rows
    words = np.ndarray((len(columns.buffer) - 7,), ">i8", columns.buffer, strides=(1,))
    begins, body, stored = rows["position"], rows["body_start"], rows["store_timestamp"]
    fields = (
        begins + columns.physical_offset,
        stored,
        stored - words[begins + _BORN_TIME],
        rows["sys_flag"] & UINT,
        words[begins + _BORN_HOST],
        words[body - _STORE_HOST],
        (words[body - _TIMES_SENT] >> 32 & UINT) // (RECONSUME_TIMES_MAX + 1),  # the low bits differ by themselves
        words[body - _PREPARED],
    )
    return np.stack(fields, dtype=np.int64)


class UncoveredFields:
    """Compares the fields of records with those before and behind, in log order.

    After DISTINCT_MAX values, such as the times of that many delayed messages, it takes no more.
    """

    def __init__(self) -> None:
        self._parts: list[Numbers] = []
        self._count = 0
        self._seen: Counter[tuple[int, int]] = Counter()  # of a field and a value that differs from a neighbour's
        self._places: list[tuple[int, int, int]] = []  # field, value, physical offset

    def hear(self, fields: Numbers) -> None:
        """Take the fields of records."""
        if len(self._seen) >= DISTINCT_MAX:
            return
        self._parts.append(fields)
        self._count += fields.shape[1]
        if self._count >= CHUNK:
            self._look()

    def suspects(self) -> set[int]:
        """Return the physical offsets of records with a rare value.

        None if these are many.
        """
        if self._parts:
            self._look()
        found = {at for field, value, at in self._places if self._seen[field, value] <= EXCEPTIONS_MAX}
        return found if len(found) <= OFFERED_MAX else set()

    def _look(self) -> None:
        fields = np.concatenate(self._parts, axis=1)
        self._parts, self._count = [fields[:, -2:]], 0
        for number, field in enumerate(fields[1:]):
            far = _is_apart(field, SLACK[number]) if number < len(SLACK) else _is_one_bit_off(field)
            places = np.flatnonzero(far) + 1
            values, inverse, counts = np.unique(field[places], return_inverse=True, return_counts=True)
            for index, (value, count) in enumerate(zip(values.tolist(), counts.tolist(), strict=True)):
                self._seen[number, value] += count
                if self._seen[number, value] <= EXCEPTIONS_MAX:
                    self._places += [(number, value, at) for at in fields[0, places[inverse == index]].tolist()]


def _is_apart(times: Numbers, slack: int) -> Flags:
    # of each time but the first and the last: whether it is outside those of both neighbours
    steps = np.diff(times)
    up, down = steps > slack, steps < -slack
    is_apart: Flags = up[:-1] & down[1:] | down[:-1] & up[1:]
    return is_apart


def _is_one_bit_off(values: Numbers) -> Flags:
    # of each value but the first and the last: whether one bit is unlike a neighbour's
    changed = np.bitwise_xor(values[1:], values[:-1])
    is_off: Flags = changed != 0
    if is_off.any():
        is_off &= np.bitwise_and(changed, changed - 1) == 0
    return is_off[:-1] | is_off[1:]
