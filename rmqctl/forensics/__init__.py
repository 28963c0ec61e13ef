"""Questions to a store. They change nothing."""
