"""Messages of the log against the units of queues, and units against messages."""
