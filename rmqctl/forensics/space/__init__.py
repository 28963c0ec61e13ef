"""What takes the bytes of a store: its log by topic, its files by their use."""
