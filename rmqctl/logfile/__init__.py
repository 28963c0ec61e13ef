"""Records -> files: the operating system, mapped files and their queues."""
