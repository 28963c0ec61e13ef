"""Access to files and queues of files, by calls of the operating system."""
