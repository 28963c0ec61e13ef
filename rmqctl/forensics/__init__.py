"""Inspections of a store, which change nothing in the store."""
