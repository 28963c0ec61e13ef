"""Copy the log and the configuration of a live master."""
