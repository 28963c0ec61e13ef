"""Rebuilding consume queues and the index from the commit log."""
