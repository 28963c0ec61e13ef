"""Deleting expired files."""
