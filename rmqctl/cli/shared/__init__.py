"""What verbs share: options, confirmation, signals."""
