"""The queue offsets up to which consumer groups and delay levels have read."""
