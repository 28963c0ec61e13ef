"""Inspections of a store, which never change the store."""
