"""What verbs show."""
