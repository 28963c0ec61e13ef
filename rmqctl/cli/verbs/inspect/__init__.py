"""The verbs that only read a store."""
