"""A store's log, queues, index and offsets, for reading only."""
