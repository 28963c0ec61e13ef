"""How far consumer groups and delay levels have read their queues."""
