"""Messages into a store."""
