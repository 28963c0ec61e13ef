"""The writers of each kind of file."""
