"""The index of a store: its files, and the entries for TAGS."""
