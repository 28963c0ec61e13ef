"""Appending messages to a store."""
