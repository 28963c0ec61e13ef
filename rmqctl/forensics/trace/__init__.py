"""The life of one message, from its first record to its consumers."""
