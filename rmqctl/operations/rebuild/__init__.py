"""Rebuilding queues and index from the log."""
