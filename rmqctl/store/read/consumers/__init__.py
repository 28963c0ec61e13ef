"""The progress of consumer groups and delay levels in the queues of a store."""
