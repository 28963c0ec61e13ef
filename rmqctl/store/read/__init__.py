"""A store, read: the log, queues, index and offsets."""
