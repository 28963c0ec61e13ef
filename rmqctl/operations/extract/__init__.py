"""A small store with selected messages of another store."""
