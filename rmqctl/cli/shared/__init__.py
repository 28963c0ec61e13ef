"""The code that verbs share: options, confirmation, signals."""
