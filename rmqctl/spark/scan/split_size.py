"""How much of a log one task reads: the default and the maximum, in MiB.

Each task needs 50 ms in addition to the time for reading.
"""

MIB = 1024 * 1024
SPLIT_MIB, SPLIT_MIB_MAX = 128, 4096
