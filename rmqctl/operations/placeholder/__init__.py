"""Placeholders: records that replace damaged records in the log."""
