"""Scans of a log by Spark's tasks."""
