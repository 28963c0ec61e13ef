"""Send messages of a store to a live cluster, as a producer does."""
