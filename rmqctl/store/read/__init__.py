"""The modules that read a store's log, queues, index and offsets."""
