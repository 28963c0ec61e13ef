"""The log, read by Spark's tasks."""
