"""Files -> message store: commit log, consume queues, index, checkpoint, configuration."""
