"""Changes of config/: offsets of consumer groups, and restored files."""
