"""The number of MiB of a log that one task reads: the default and the maximum.

Each task needs 50 ms in addition to the time for reading.
"""

MIB = 1024 * 1024
SPLIT_MIB, SPLIT_MIB_MAX = 128, 4096
