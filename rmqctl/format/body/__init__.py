"""The message bodies and ids that brokers and clients write for their own use."""
