"""Compiled twins of the format."""
