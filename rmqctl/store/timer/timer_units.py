"""The units of timerlog and the slots of timerwheel (5.x).

They lead to the messages of rmq_sys_wheel_timer until these are due.

timerlog/: files of equal size with units of 52 bytes. The units of one second form a chain, from the newest to the
oldest:

{unit}

A unit with BLANK_MAGIC and at least 16 bytes ends a file.

timerwheel: a slot of 32 bytes for each second of 14 days. The slot of a second is its number modulo 1,209,600. Nothing
clears a slot; the next second that falls into it overwrites it:

{slot}
"""

from __future__ import annotations

import numpy as np

from rmqctl.format.layout import Field, Layout

TIMER_UNIT = Layout(
    "timer log unit",
    (
        Field("size", "i", "52"),
        Field("prevPos", "q", "position in timerlog of the unit before it in its chain; -1: it is the first"),
        Field("magic", "i", "bits: 1 put, 2 roll (not due yet: the broker stores the message again), 4 delete"),
        Field("currWriteTime", "q", "ms since 1970"),
        Field("delayTime", "i", "ms from currWriteTime to the unit's second"),
        Field("offsetPy", "q", "of the record in the commit log"),
        Field("sizePy", "i", "of the record"),
        Field("hashCodeOfRealTopic", "i"),
        Field("reserved", "q"),
    ),
)
TIMER_SLOT = Layout(
    "timer wheel slot",
    (
        Field("second", "q", "since 1970; units of timerPrecisionMs, 1000 by default"),
        Field("firstPos", "q", "position in timerlog of the second's first unit"),
        Field("lastPos", "q", "of its last unit"),
        Field("num", "i", "messages"),
        Field("magic", "i"),
    ),
)
BLANK_MAGIC = (0xBBCCDDEE ^ 1880681594) - (1 << 32)
MAGIC_PUT, MAGIC_ROLL = 1, 2
BLANK_SIZE = 16  # the least size of a blank
SLOTS = 2 * 7 * 24 * 60 * 60
if (TIMER_UNIT.size, TIMER_SLOT.size) != (52, 32):
    raise AssertionError("a unit has 52 bytes, a slot 32")
UNITS = np.dtype([(one.name, f">i{one.size}") for one in TIMER_UNIT.fields])
WHEEL = np.dtype([(one.name, f">i{one.size}") for one in TIMER_SLOT.fields])
WHEEL_SIZE = SLOTS * WHEEL.itemsize
__doc__ = (__doc__ or "").format(unit=TIMER_UNIT.table(), slot=TIMER_SLOT.table())
