"""The writers of a store's files."""
