"""Changes of files in config/: new offsets of groups, and restored files."""
