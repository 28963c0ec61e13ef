"""Questions about a store that change nothing."""
