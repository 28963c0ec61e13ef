"""Changes of files in config/: offsets of consumer groups, restored files."""
