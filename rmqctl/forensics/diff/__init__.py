"""Differences between two stores of one log."""
