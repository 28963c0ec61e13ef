"""How much of a log a task reads: a task costs 50 ms beside its reading."""

MIB = 1024 * 1024
SPLIT_MIB, SPLIT_MIB_MAX = 128, 4096
