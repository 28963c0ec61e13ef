"""Queues and index from the log."""
