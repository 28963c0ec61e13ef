"""Queues, index and small files compared with the log."""
