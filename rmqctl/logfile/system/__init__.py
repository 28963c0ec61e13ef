"""Calls of the operating system: read, list, write, sync and lock files."""
