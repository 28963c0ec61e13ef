"""Which queue units and index keys a message has."""
