"""A store for reading: log, queues, index and offsets."""
