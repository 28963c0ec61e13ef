"""Audits, which compare queues, index and small files with the log."""
