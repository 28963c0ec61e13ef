"""Records that replace damaged records."""
