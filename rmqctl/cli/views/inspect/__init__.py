"""What the verbs that only read a store show."""
