"""Queues in a simulated recovery, by their kind."""
