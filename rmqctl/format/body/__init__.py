"""What brokers and clients write for themselves: message bodies, and ids."""
