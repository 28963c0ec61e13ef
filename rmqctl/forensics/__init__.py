"""Questions to a store that change nothing."""
