"""What consumers get: DefaultMessageStore's reading side."""
