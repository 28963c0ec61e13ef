"""Inspections of a store. They change nothing in the store."""
