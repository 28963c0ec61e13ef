"""The operating system, mapped files and queues of files."""
