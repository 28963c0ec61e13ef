"""Export the messages of stores to files for other programs."""
