"""Deleting expired files of a store, as RocketMQ's clean services do."""
