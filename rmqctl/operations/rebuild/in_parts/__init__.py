"""A rebuild by many processes, each for a part of the log."""
