"""How much of a log one task reads.

A task costs 50 ms in addition to its reading.
"""

MIB = 1024 * 1024
SPLIT_MIB, SPLIT_MIB_MAX = 128, 4096
