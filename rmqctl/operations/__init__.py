"""What only rmqctl does to a store."""
