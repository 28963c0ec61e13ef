"""Reading a store: its log, its queues, its index and its offsets."""
