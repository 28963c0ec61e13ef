"""The progress of consumer groups in their queues."""
