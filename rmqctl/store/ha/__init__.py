"""Replication of the log: what RocketMQ's HAService does."""
