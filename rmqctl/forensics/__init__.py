"""Questions about a store; their answers change nothing."""
