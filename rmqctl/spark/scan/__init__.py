"""The reading of a log by Spark's tasks."""
