"""Erase messages: every copy, and what is left of them behind the log's end."""
