"""Checks of what brokers keep in RocksDB."""
