"""Consumer groups: how far they have read their queues."""
