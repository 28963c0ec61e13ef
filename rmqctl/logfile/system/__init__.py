"""The operating system: what reads, lists, writes, syncs and locks files."""
