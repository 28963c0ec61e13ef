"""Queues, configuration, index and timers that brokers keep in RocksDB."""
