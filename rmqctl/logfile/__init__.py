"""Access to files, to queues of files, and to calls of the operating system."""
