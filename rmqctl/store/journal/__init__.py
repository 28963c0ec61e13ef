"""Changes that can be undone."""
