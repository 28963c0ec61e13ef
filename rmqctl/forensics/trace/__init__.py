"""The life of one message: its records, its fate, and who has consumed it."""
